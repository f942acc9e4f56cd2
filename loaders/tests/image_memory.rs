//! What decoding and preprocessing take of memory, counted by the allocator.

mod image_support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use ember_loaders::image::{Preprocessor, RgbImage, SizeRule};
use image_support::{decode_default, fixture};

/// Counts this thread's live bytes and their peak.
struct Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(change: isize) {
    let live = LIVE.get() + change;
    LIVE.set(live);
    PEAK.set(PEAK.get().max(live));
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches only const-initialised
// thread-locals without destructors, which do not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The result of `run`, and the most bytes that it had allocated at a time.
fn counting<T>(run: impl FnOnce() -> T) -> (T, f64) {
    let before = LIVE.get();
    PEAK.set(before);
    let result = run();
    (result, (PEAK.get() - before) as f64)
}

#[test]
fn decoding_takes_at_most_eleven_bytes_a_pixel() {
    for (name, expected) in [
        ("baseline.jpg", 6.0),
        ("progressive.jpg", 9.0),
        ("palette.png", 6.0),
        ("rgba.png", 7.0),
        ("lossless.webp", 7.0),
        ("lossy.webp", 10.5),
        ("still.gif", 7.0),
    ] {
        let file = fixture(&format!("large/{name}"));
        let (image, bytes) = counting(|| decode_default(&file).unwrap());
        let pixels = 640.0 * 480.0;
        assert_eq!(image.pixels.len() as f64, 3.0 * pixels, "{name}");
        // Rows, tables and the file itself come on top.
        let rest = bytes - expected * pixels;
        assert!(rest < 100_000.0, "{name}: {:.2} bytes a pixel", bytes / pixels);
    }
}

#[test]
fn a_size_over_the_limit_is_refused_before_it_is_allocated() {
    let mut png = fixture("large/rgba.png");
    png[16..20].copy_from_slice(&60_000u32.to_be_bytes());
    png[20..24].copy_from_slice(&60_000u32.to_be_bytes());
    let (error, bytes) = counting(|| decode_default(&png).unwrap_err());
    assert!(error.to_string().starts_with("the image is 60000x60000"), "{error}");
    assert!(bytes < 4096.0, "{bytes} bytes");
}

#[test]
fn preprocessing_takes_the_result_twice_whatever_the_image_s_size() {
    let rule = SizeRule { longest_edge: 560, cell: 28, max_tokens: None };
    let preprocessor = Preprocessor { rule, mean: [0.5; 3], std: [0.5; 3] };
    for (width, height) in [(600, 400), (3000, 2000)] {
        let image = RgbImage { width, height, pixels: vec![100; width * height * 3] };
        let (values, bytes) = counting(|| preprocessor.preprocess(&image));
        let result = values.values.len() as f64 * 4.0;
        assert!(bytes < 2.0 * result + 100_000.0, "{width}x{height}: {bytes} bytes for {result}");
    }
}
