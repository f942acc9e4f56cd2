//! Ember's models on Vulkan, Metal and WebGPU devices, through wgpu. Empty without a feature of those names.
#![cfg(feature = "wgpu")]

// The crates that `Wgpu` and its device come from.
pub use {burn_cubecl, burn_wgpu};

use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::Runtime as _;
use burn_cubecl::cubecl::client::ComputeClient;
use burn_cubecl::cubecl::future::block_on;
use burn_wgpu::graphics::{AutoGraphicsApi, GraphicsApi, Metal, Vulkan};
use burn_wgpu::{RuntimeOptions, WgpuDevice, WgpuRuntime, init_setup};
use ember_backend_common::{
    CacheOptions, DeviceError, DeviceInfo, Floor, LoadedModel, Progress, gpu, measure,
};
use ember_loaders::checkpoint::Checkpoint;
use ember_loaders::projector::Projector;
use ember_models::{ImageEncoder, PixtralEncoder};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use wgpu::{AdapterInfo, DeviceType};

/// The Burn backend of all wgpu devices.
pub type Wgpu = CubeBackend<WgpuRuntime, f32, i32, u32>;

/// A graphics API that devices are opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// Apple's.
    Metal,
    /// Vulkan.
    Vulkan,
    /// The one that WebGPU stands on: Metal on macOS, Vulkan elsewhere.
    WebGpu,
}

/// The devices that the driver sees.
pub fn devices(api: Api) -> Vec<DeviceInfo> {
    let info = |(index, (adapter, device)): (usize, (AdapterInfo, WgpuDevice))| {
        set_up(api, &device);
        let mut facts = gpu::facts(&WgpuRuntime::client(&device));
        facts.insert(0, format!("{} ({})", kind(adapter.device_type), adapter.driver_info.trim()));
        facts.insert(1, "memory: wgpu does not tell".to_owned());
        DeviceInfo { index, name: adapter.name, facts }
    };
    adapters(api).into_iter().enumerate().map(info).collect()
}

/// Builds the model of a checkpoint on a device.
///
/// # Errors
/// A device that is not there or fails, a context beyond the model's, a cache or weights that do not fit, or a missing
/// tensor.
pub fn load(
    api: Api,
    checkpoint: &Checkpoint,
    device: usize,
    options: CacheOptions,
    progress: Progress<'_>,
) -> Result<LoadedModel, DeviceError> {
    gpu::load::<Wgpu>(checkpoint, options, open(api, device)?, progress)
}

/// Builds the image encoder of a projector file on a device.
///
/// # Errors
/// A device that is not there or fails, or weights that do not fit.
pub fn load_projector(
    api: Api,
    projector: &Projector,
    device: usize,
    progress: Progress<'_>,
) -> Result<Box<dyn ImageEncoder>, DeviceError> {
    Ok(Box::new(PixtralEncoder::<Wgpu>::load(projector, open(api, device)?.0, progress)?))
}

/// Measures what a device does at best.
///
/// # Errors
/// A device that is not there or fails.
pub fn floor(api: Api, device: usize) -> Result<Floor, DeviceError> {
    gpu::floor::<WgpuRuntime>(&open(api, device)?.0)
}

/// Measures single products of a device beside what it does at best; `report` gets a line for each.
///
/// # Errors
/// A device that is not there or fails.
pub fn measure(api: Api, device: usize, report: &mut dyn FnMut(String)) -> Result<(), DeviceError> {
    measure::measure::<WgpuRuntime>(&open(api, device)?.0, report)
}

/// Compares every kernel of a device with its definition on the CPU; `report` gets, for each comparison, whether it holds
/// and its text.
///
/// # Errors
/// A device that is not there or fails.
#[cfg(feature = "check")]
pub fn check(api: Api, device: usize, report: &mut dyn FnMut(bool, String)) -> Result<(), DeviceError> {
    ember_backend_common::check::check::<WgpuRuntime, Wgpu>(&open(api, device)?.0, report)
}

/// Device `index` and its name, ready for use.
fn open(api: Api, index: usize) -> Result<(WgpuDevice, String), DeviceError> {
    let mut adapters = adapters(api);
    let available = adapters.len();
    if available == 0 {
        let advice = match api {
            Api::Metal => "Metal needs macOS",
            _ => {
                "install the graphics card's Vulkan driver (on Linux also libvulkan1; mesa-vulkan-drivers brings a slow one for the CPU)"
            }
        };
        return Err(DeviceError::NoDevice { advice });
    }
    if index >= available {
        return Err(DeviceError::NoSuchDevice { index, available });
    }
    let (adapter, device) = adapters.swap_remove(index);
    set_up(api, &device);
    check_limits(&WgpuRuntime::client(&device))?;
    Ok((device, adapter.name))
}

/// Storage buffers of a kernel: those of the rotation, without the one that CubeCL adds. WebGPU guarantees one less, but
/// native devices offer many more.
const BUFFERS: u32 = 8;

/// Refuses a device that the kernels do not fit.
fn check_limits(client: &ComputeClient<WgpuRuntime>) -> Result<(), DeviceError> {
    let offered = client.properties().hardware.max_bindings;
    if offered < BUFFERS {
        return Err(DeviceError::TooFewBuffers { offered, needed: BUFFERS });
    }
    Ok(())
}

/// Opens the device with the graphics API, once.
fn set_up(api: Api, device: &WgpuDevice) {
    static OPEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    gpu::prepare();
    // Vulkan and WebGPU name the same device: on this platform they are the same API.
    if !OPEN.lock().unwrap_or_else(PoisonError::into_inner).insert(format!("{device:?}")) {
        return;
    }
    match api {
        Api::Metal => init_setup::<Metal>(device, RuntimeOptions::default()),
        Api::Vulkan => init_setup::<Vulkan>(device, RuntimeOptions::default()),
        _ => init_setup::<AutoGraphicsApi>(device, RuntimeOptions::default()),
    };
}

/// The adapters of the graphics API, real GPUs first, each as CubeCL names it.
fn adapters(api: Api) -> Vec<(AdapterInfo, WgpuDevice)> {
    let api = match api {
        Api::Metal => Metal::backend(),
        Api::Vulkan => Vulkan::backend(),
        _ => AutoGraphicsApi::backend(),
    };
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends: api.into(),
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    });
    let mut seen = [0; 3];
    let mut count = |kind: usize| {
        seen[kind] += 1;
        seen[kind] - 1
    };
    let mut all: Vec<(AdapterInfo, WgpuDevice)> = block_on(instance.enumerate_adapters(api.into()))
        .into_iter()
        .map(|adapter| adapter.get_info())
        .filter_map(|info| {
            // CubeCL numbers the adapters of each kind in the order of the driver.
            let device = match info.device_type {
                DeviceType::DiscreteGpu => WgpuDevice::DiscreteGpu(count(0)),
                DeviceType::IntegratedGpu => WgpuDevice::IntegratedGpu(count(1)),
                DeviceType::VirtualGpu => WgpuDevice::VirtualGpu(count(2)),
                DeviceType::Cpu => WgpuDevice::Cpu,
                DeviceType::Other => return None,
            };
            Some((info, device))
        })
        .collect();
    all.sort_by_key(|(info, _)| match info.device_type {
        DeviceType::DiscreteGpu => 0,
        DeviceType::IntegratedGpu => 1,
        DeviceType::VirtualGpu => 2,
        DeviceType::Cpu | DeviceType::Other => 3,
    });
    all
}

fn kind(device: DeviceType) -> &'static str {
    match device {
        DeviceType::DiscreteGpu => "discrete GPU",
        DeviceType::IntegratedGpu => "integrated GPU",
        DeviceType::VirtualGpu => "virtual GPU",
        DeviceType::Cpu => "CPU",
        DeviceType::Other => "other",
    }
}
