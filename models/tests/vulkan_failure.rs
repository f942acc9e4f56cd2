//! A device that fails gives errors, never zeros, and another device goes on. A process of its own: the device is lost.
mod common;

use burn::tensor::Tensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::Runtime;
use burn_wgpu::{WgpuDevice, WgpuRuntime};
use common::{golden, vision};
use ember_loaders::checkpoint::Checkpoint;
use ember_models::backend::{Backend, read};
use ember_models::{Batch, Decoder, KvCache, KvType, ModelError, Pixtral, WeightFormat};
use std::sync::atomic::{AtomicUsize, Ordering};

type B = CubeBackend<WgpuRuntime, f32, i32, u32>;

/// Two devices of CubeCL, each with a thread of its own. Where there is one adapter, as with Mesa's llvmpipe, it is both.
const LOST: WgpuDevice = WgpuDevice::Cpu;
const OTHER: WgpuDevice = WgpuDevice::DefaultDevice;

/// Panics that were reported.
static REPORTED: AtomicUsize = AtomicUsize::new(0);

/// A text model, an image encoder and an image on a device.
struct Models {
    decoder: Decoder<B>,
    cache: KvCache,
    encoder: Pixtral<B>,
    reference: vision::Reference,
    device: WgpuDevice,
}

impl Models {
    fn load(device: WgpuDevice) -> Result<Self, ModelError> {
        let checkpoint = Checkpoint::open(golden::file("qwen3-tied/f32.gguf")).expect("a fixture");
        let projector = vision::projector("gelu-2", "mmproj-f32.gguf");
        let decoder = Decoder::load(&checkpoint, WeightFormat::Packed, &device)?;
        let cache = KvCache::new::<B>(checkpoint.config(), KvType::F16, 64, &device)?;
        let encoder = Pixtral::load(&projector, WeightFormat::Packed, &device)?;
        let reference = vision::reference("gelu-2", vision::REFERENCES[0], projector.config().cell_size());
        Ok(Self { decoder, cache, encoder, reference, device })
    }

    /// Logits of three tokens, still on the device.
    fn step(&mut self) -> Result<Tensor<B, 2>, ModelError> {
        let mut batch = Batch::single(&[1, 2, 3], 0, &[0], KvCache::BLOCK_LEN);
        batch.logits_rows = vec![2];
        Ok(self.decoder.step(&batch, &mut self.cache, &self.device)?.logits.expect("wanted"))
    }

    /// Embeddings of an image, still on the device.
    fn encode(&self) -> Result<Tensor<B, 2>, ModelError> {
        self.encoder.forward(&self.reference.images, &self.device)
    }
}

/// The error is the device's, with the first thing that went wrong on it.
fn assert_lost<T>(what: &str, result: Result<T, ModelError>) {
    let error = result.err().unwrap_or_else(|| panic!("{what} after the device has failed"));
    assert!(matches!(error, ModelError::Device(_)), "{what}: {error:?}");
    let message = error.to_string();
    assert!(message.contains("the device failed") && message.contains("240000000"), "{what}: {message}");
}

#[test]
fn a_failed_device_gives_errors_and_another_goes_on() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        REPORTED.fetch_add(1, Ordering::Relaxed);
        report(panic);
    }));
    let mut lost = Models::load(LOST).expect("a device and models that fit");
    let mut other = Models::load(OTHER).expect("a device and models that fit");
    let step = |models: &mut Models| read(models.step()?);
    let encode = |models: &Models| read(models.encode()?);
    let logits = step(&mut other).expect("a healthy device");
    let embeddings = encode(&other).expect("a healthy device");
    assert_eq!(step(&mut lost).expect("a healthy device"), logits);
    let [first, second] = [lost.step(), lost.step()].map(|logits| logits.expect("a healthy device"));

    // More than Mesa's device binds, asked for behind Ember's back: CubeCL panics on the device's thread.
    let _lost = Tensor::<B, 1>::zeros([60_000_000], &LOST);
    let _settled = WgpuRuntime::client(&LOST).flush();
    let reported = REPORTED.load(Ordering::Relaxed);
    assert!(reported > 0, "no call of Ember's was there to return it as an error");

    assert_lost("reading", read(first));
    assert_lost("picking", B::top_k(second, 1));
    for attempt in 0..2 {
        assert_lost("a step", lost.step().and_then(read));
        assert_lost("an image", lost.encode().and_then(read));
        assert_lost(&format!("load {attempt}"), Models::load(LOST));
    }
    let layout = lost.cache.layout();
    assert_lost("pages", B::kv_pages(layout, 1, &LOST));

    assert_eq!(step(&mut other).expect("the other device goes on"), logits);
    assert_eq!(encode(&other).expect("the other device goes on"), embeddings);
    // What was returned as an error was not reported as well; what has nothing to do with a device is.
    assert_eq!(REPORTED.load(Ordering::Relaxed), reported);
    std::thread::spawn(|| panic!("on purpose")).join().expect_err("it panics");
    assert_eq!(REPORTED.load(Ordering::Relaxed), reported + 1);
}
