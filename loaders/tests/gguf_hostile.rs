//! Files that are broken on purpose: each gives an error that names the fault and the offset, and none makes
//! the reader allocate more than its size justifies.

mod gguf_support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use ember_loaders::gguf::{Fault, Gguf, GgufError};
use gguf_support::Raw;

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

/// Opens `bytes` and says how many bytes that took beyond them at the most.
fn open_counting(bytes: Vec<u8>) -> (Result<Gguf, GgufError>, usize) {
    let before = LIVE.get();
    PEAK.set(before);
    let result = Gguf::from_bytes(bytes);
    (result, (PEAK.get() - before) as usize)
}

/// The fault and its offset. Little is allocated for a small file, whatever it claims.
#[track_caller]
fn fault(raw: Raw) -> (u64, Fault) {
    let bound = 4096 + 4 * raw.0.len();
    let (result, allocated) = open_counting(raw.0);
    assert!(allocated <= bound, "{allocated} bytes allocated");
    match result {
        Err(GgufError::Malformed { offset, fault, .. }) => (offset, fault),
        other => panic!("expected a malformed file, got {other:?}"),
    }
}

fn text(fault: (u64, Fault)) -> String {
    format!("{}: {}", fault.0, fault.1)
}

/// Offset of the first metadata entry, and of the first tensor description when there is none.
const BODY: u64 = 24;

#[test]
fn every_prefix_of_a_file_is_refused() {
    let whole = Raw::header(2, 4)
        .key("general.architecture", 8)
        .string("qwen3".as_bytes())
        .key("numbers", 9)
        .u32(4)
        .u64(2)
        .u32(1)
        .u32(2)
        .key("texts", 9)
        .u32(8)
        .u64(2)
        .string(b"a")
        .string(b"bc")
        .key("nested", 9)
        .u32(9)
        .u64(1)
        .u32(7)
        .u64(2)
        .bytes(&[0, 1])
        .tensor("first", &[4, 2], 0, 0)
        .tensor("second", &[32], 8, 32)
        .data(32 + 34);
    Gguf::from_bytes(whole.0.clone()).unwrap();
    for len in 0..whole.0.len() {
        let (result, allocated) = open_counting(whole.0[..len].to_vec());
        assert!(allocated <= 8192, "{allocated} bytes allocated for {len}");
        match result {
            Err(GgufError::Malformed { offset, fault, .. }) => {
                assert!(offset <= len as u64, "offset {offset} of {len}: {fault}");
                assert!(
                    matches!(
                        fault,
                        Fault::Truncated { .. } | Fault::ImpossibleCount { .. } | Fault::OutsideFile { .. }
                    ),
                    "{len}: {fault}"
                );
            }
            other => panic!("the first {len} bytes: {other:?}"),
        }
    }
}

#[test]
fn truncation_names_the_field() {
    let in_key = Raw::header(0, 1).u64(20).bytes(b"general");
    assert_eq!(
        text(fault(in_key)),
        "32: file ends inside the key of metadata entry 1: 20 more bytes needed, 7 left (interrupted download?)"
    );
    let in_value = Raw::header(0, 1).key("n", 10).u32(0);
    assert_eq!(
        text(fault(in_value)),
        "37: file ends inside the value of `n`: 8 more bytes needed, 4 left (interrupted download?)"
    );
    let in_data = Raw::header(1, 0).tensor("w", &[8], 0, 0).data(31);
    assert_eq!(
        text(fault(in_data)),
        "49: data of tensor `w` lies outside the file: 32 bytes from offset 64, but the file has 95 \
         (interrupted download, or the first piece of a file that was cut up? join its pieces in order with `cat`)"
    );
}

#[test]
fn foreign_files() {
    let what = |bytes: &[u8]| text(fault(Raw(bytes.to_vec())));
    assert_eq!(
        what(b"<!DOCTYPE html>"),
        "0: bad magic: this is an HTML page (failed download?), not a GGUF file"
    );
    for (bytes, named) in [
        (b" <html lang=en>".as_slice(), "an HTML page"),
        (b"<?xml version='1.0'?><Error>", "an XML or HTML document"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"{\"error\":\"not found\"}", "JSON"),
        (b"PK\x03\x04rest", "PyTorch"),
        (b"\x1f\x8b\x08", "gzip"),
        (b"tjgg\x03\0\0\0", "older than GGUF"),
        (b"\x10\0\0\0\0\0\0\0{\"a\":", "safetensors"),
        (&[0; 64], "zero bytes"),
        (b"GGUX", "unrecognised"),
    ] {
        let message = what(bytes);
        assert!(message.starts_with("0: bad magic: ") && message.contains(named), "{message}");
    }
}

#[test]
fn versions() {
    let version = |n: u32| text(fault(Raw(b"GGUF".to_vec()).u32(n).u64(0).u64(0)));
    for n in [0, 1, 4, u32::MAX] {
        assert!(version(n).starts_with(&format!("4: GGUF version {n} is not supported")), "{}", version(n));
    }
    for n in [1, 2, 3_u32] {
        assert!(version(n.swap_bytes()).starts_with("4: big-endian GGUF file"));
    }
    assert_eq!(fault(Raw(b"FUGG\0\0\0\x03".to_vec())), (0, Fault::BigEndian));
}

#[test]
fn huge_counts_and_lengths() {
    for huge in [u64::MAX, 1 << 63, 1 << 40, 1000] {
        let raw = Raw::header(huge, 0).data(64);
        assert!(text(fault(raw)).starts_with(&format!("8: the tensor count claims {huge} entries")));
        let raw = Raw::header(0, huge).data(64);
        assert!(text(fault(raw)).starts_with(&format!("16: the metadata count claims {huge} entries")));
        let raw = Raw::header(0, 1).u64(huge).data(64);
        assert!(
            text(fault(raw))
                .starts_with(&format!("32: file ends inside the key of metadata entry 1: {huge}"))
        );
        let raw = Raw::header(0, 1).key("s", 8).u64(huge).data(64);
        assert!(text(fault(raw)).starts_with(&format!("45: file ends inside the value of `s`: {huge} more")));
        for element in 0..=12 {
            let raw = Raw::header(0, 1).key("a", 9).u32(element).u64(huge).data(64);
            assert!(text(fault(raw)).starts_with(&format!("41: the value of `a` claims {huge} entries")));
        }
        let raw = Raw::header(1, 0).u64(huge).data(64);
        assert!(text(fault(raw)).starts_with(&format!("32: file ends inside the name of tensor 1: {huge}")));
    }
}

#[test]
fn big_files_of_tiny_entries_stay_in_proportion() {
    // The worst amplification: the smallest things that cost a `String`, an `Array` or an entry each.
    let n = 20_000;
    let mut texts = Raw::header(0, 1).key("a", 9).u32(8).u64(n);
    let mut arrays = Raw::header(0, 1).key("a", 9).u32(9).u64(n);
    let mut entries = Raw::header(0, n);
    let mut tensors = Raw::header(n, 0);
    for i in 0..n {
        texts = texts.string(b"");
        arrays = arrays.u32(8).u64(0);
        entries = entries.key(&format!("{i:x}"), 7).bytes(&[1]);
        tensors = tensors.tensor(&format!("{i:x}"), &[1], 1, 32 * i);
    }
    for (name, raw) in [("texts", texts), ("arrays", arrays), ("entries", entries), ("tensors", tensors)] {
        // Once as a whole, once cut off inside the last entry.
        for cut in [0, 1] {
            let data = if name == "tensors" && cut == 0 { 32 * n as usize } else { 0 };
            let mut raw = raw.clone();
            raw.0.truncate(raw.0.len() - cut);
            let header_len = raw.0.len();
            let (result, allocated) = open_counting(if data > 0 { raw.data(data).0 } else { raw.0 });
            assert_eq!(result.is_ok(), cut == 0, "{name}: {:?}", result.err());
            assert!(allocated <= 20 * header_len, "{name}: {allocated} bytes for {header_len}");
        }
    }
}

#[test]
fn hostile_values() {
    let raw = Raw::header(0, 1).key("x", 13);
    assert_eq!(
        text(fault(raw.data(8))),
        "33: the value of `x` has unknown value type 13 (0 to 12 are defined)"
    );
    let raw = Raw::header(0, 1).key("x", 9).u32(99).u64(0);
    assert_eq!(text(fault(raw)), "37: the value of `x` has unknown value type 99 (0 to 12 are defined)");
    let raw = Raw::header(0, 1).key("x", 7).bytes(&[2]);
    assert_eq!(text(fault(raw)), "37: the value of `x` is a bool with value 2; only 0 and 1 are allowed");
    let raw = Raw::header(0, 1).key("x", 9).u32(7).u64(3).bytes(&[0, 1, 3]);
    assert_eq!(text(fault(raw)), "51: the value of `x` is a bool with value 3; only 0 and 1 are allowed");
    let raw = Raw::header(0, 1).string(b"k\xff").u32(7).bytes(&[0]);
    assert_eq!(text(fault(raw)), "33: the key of metadata entry 1 is not valid UTF-8");
    let raw = Raw::header(0, 1).key("x", 8).string(b"ab\xc3");
    assert_eq!(text(fault(raw)), "47: the value of `x` is not valid UTF-8");
    let raw = Raw::header(0, 2).key("x", 7).bytes(&[0]).key("x", 7).bytes(&[0]);
    assert_eq!(text(fault(raw)), "38: metadata key `x` appears twice");
}

#[test]
fn nested_arrays_have_a_limit() {
    let nested = |depth: usize| {
        let mut raw = Raw::header(0, 1).key("x", 9);
        for _ in 1..depth {
            raw = raw.u32(9).u64(1);
        }
        raw.u32(0).u64(1).bytes(&[7])
    };
    let gguf = Gguf::from_bytes(nested(8).0).unwrap();
    assert_eq!(gguf.metadata().get("x").unwrap().to_string(), "[[[[[[[[7]]]]]]]]");
    assert_eq!(text(fault(nested(9))), "133: the value of `x` nests arrays more than 8 deep");
    assert_eq!(text(fault(nested(100_000))), "133: the value of `x` nests arrays more than 8 deep");
}

#[test]
fn alignments() {
    let aligned =
        |type_id: u32, alignment: &[u8]| Raw::header(0, 1).key("general.alignment", type_id).bytes(alignment);
    for bad in [0, 3, 48, u32::MAX] {
        assert_eq!(
            text(fault(aligned(4, &bad.to_le_bytes()))),
            format!("49: general.alignment must be a power of two, but is {bad}")
        );
    }
    assert_eq!(
        text(fault(aligned(5, &(-32_i32).to_le_bytes()))),
        "49: general.alignment must be a power of two, but is -32"
    );
    assert_eq!(
        text(fault(aligned(8, &[0; 8]))),
        "49: general.alignment must be a power of two, but is of type string"
    );
    // The data region of such a file would start beyond any file, or beyond 64 bits.
    for huge in [1_u64 << 31, 1 << 63] {
        let raw = Raw::header(1, 1).key("general.alignment", 10).u64(huge).tensor("w", &[8], 0, 0).data(32);
        let message = text(fault(raw));
        assert!(message.starts_with("86: data of tensor `w` lies outside the file"), "{message}");
    }
}

#[test]
fn hostile_shapes() {
    let shaped =
        |dims: &[u64], type_id: u32| text(fault(Raw::header(1, 0).tensor("w", dims, type_id, 0).data(64)));
    let at = BODY + 9;
    assert_eq!(shaped(&[], 0), format!("{at}: tensor `w` has 0 dimensions; 1 to 4 are allowed"));
    assert_eq!(shaped(&[1; 5], 0), format!("{at}: tensor `w` has 5 dimensions; 1 to 4 are allowed"));
    assert_eq!(shaped(&[2, 0], 0), format!("{at}: tensor `w` has a dimension of size zero: [2, 0]"));
    assert_eq!(shaped(&[0], 12), format!("{at}: tensor `w` has a dimension of size zero: [0]"));
    for dims in [
        [u64::MAX, 2].as_slice(),
        &[1 << 32, 1 << 32],
        &[1 << 16; 4],
        &[1 << 63],
        &[1 << 61, 1],
        &[256, u64::MAX],
    ] {
        assert_eq!(shaped(dims, 0), format!("{at}: the size of tensor `w` overflows: {dims:?}"));
    }
    assert_eq!(
        shaped(&[48, 2], 8),
        format!("{at}: rows of tensor `w` have 48 weights, not a multiple of the 32 of a Q8_0 block")
    );
    // Whole blocks in all, but not in each row.
    assert_eq!(
        shaped(&[128, 2], 12),
        format!("{at}: rows of tensor `w` have 128 weights, not a multiple of the 256 of a Q4_K block")
    );
    let raw = Raw::header(1, 0).string(b"w").u32(u32::MAX).data(64);
    assert_eq!(text(fault(raw)), format!("{at}: tensor `w` has 4294967295 dimensions; 1 to 4 are allowed"));
}

#[test]
fn hostile_offsets() {
    let placed = |offset: u64| text(fault(Raw::header(1, 0).tensor("w", &[8], 0, offset).data(64)));
    assert_eq!(placed(8), "49: data offset 8 of tensor `w` is not a multiple of the alignment 32");
    assert!(placed(64).starts_with("49: data of tensor `w` lies outside the file: 32 bytes from offset 128"));
    for offset in [1 << 40, 1 << 63, u64::MAX - 31] {
        assert!(placed(offset).starts_with("49: data of tensor `w` lies outside the file"));
    }
}

#[test]
fn hostile_neighbours() {
    let pair = |second: &str, first_offset: u64, second_offset: u64| {
        let raw =
            Raw::header(2, 0).tensor("a", &[16], 0, first_offset).tensor(second, &[16], 0, second_offset);
        raw.data(128)
    };
    Gguf::from_bytes(pair("b", 0, 64).0).unwrap();
    Gguf::from_bytes(pair("b", 64, 0).0).unwrap();
    assert_eq!(text(fault(pair("a", 0, 64))), "57: tensor name `a` appears twice");
    assert_eq!(text(fault(pair("b", 0, 32))), "82: data of tensors `a` and `b` overlap");
    assert_eq!(text(fault(pair("b", 32, 0))), "49: data of tensors `b` and `a` overlap");
    assert_eq!(text(fault(pair("b", 0, 0))), "82: data of tensors `a` and `b` overlap");
    let raw = Raw::header(1, 0).string(b"\x80").u32(1).u64(8).u32(0).u64(0).data(32);
    assert_eq!(text(fault(raw)), "32: the name of tensor 1 is not valid UTF-8");
}
