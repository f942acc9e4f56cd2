//! A device that fails must end the request, never answer with zeros. A process of its own: the device is lost after it.
mod cli_support;

use ember::device::{BackendKind, CacheOptions, DeviceOptions, KvType, LoadOptions, load};
use ember::engine::{Engine, Sequence, Wanted};
use ember_backend_wgpu::Wgpu;
use ember_loaders::checkpoint::Checkpoint;

#[test]
fn a_failed_device_ends_the_request_with_its_message() {
    let checkpoint = Checkpoint::open(cli_support::model("qwen3-tied/f32.gguf")).expect("a fixture");
    let options = LoadOptions {
        device: DeviceOptions { backend: BackendKind::Vulkan, device: 0, threads: None },
        cache: CacheOptions { context_size: 64, kv_type: KvType::F16 },
    };
    let placed = load(&checkpoint, &options, &mut |_| ()).expect("a device and a model that fits");
    let mut engine = Engine::new(placed.runner);
    let mut sequence = Sequence::default();
    let mut step = || engine.extend(&mut sequence, &[1, 2, 3], Wanted::Last, &mut |_| true);
    step().expect("a healthy device");
    // More than Mesa's device binds, asked for behind Ember's back: CubeCL panics on the device's thread.
    type Device = burn::tensor::Device<Wgpu>;
    let _lost = burn::tensor::Tensor::<Wgpu, 1>::zeros([60_000_000], &Device::Cpu);
    let error = step().expect_err("the device has failed").to_string();
    assert!(error.contains("the device failed") && error.contains("240000000"), "{error}");
    assert!(step().is_err(), "it does not come back");
}
