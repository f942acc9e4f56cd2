//! Vulkan, Metal and WebGPU devices, through wgpu.
use super::{BackendKind, DeviceInfo, gpu};
use anyhow::{Result, bail};
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::Runtime as _;
use burn_cubecl::cubecl::client::ComputeClient;
use burn_cubecl::cubecl::future::block_on;
use burn_wgpu::graphics::{AutoGraphicsApi, GraphicsApi, Metal, Vulkan};
use burn_wgpu::{RuntimeOptions, WgpuDevice, WgpuRuntime, init_setup};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use wgpu::{AdapterInfo, DeviceType};

/// The CubeCL runtime.
pub type Runtime = WgpuRuntime;

/// The Burn backend of all wgpu devices.
pub type Wgpu = CubeBackend<WgpuRuntime, f32, i32, u32>;

/// See [`devices`](super::devices).
pub fn devices(backend: BackendKind) -> Result<Vec<DeviceInfo>> {
    let adapters = adapters(backend);
    let info = |(index, (adapter, device)): (usize, (AdapterInfo, WgpuDevice))| {
        set_up(backend, &device);
        let mut facts = gpu::facts(&WgpuRuntime::client(&device));
        facts.insert(0, format!("{} ({})", kind(adapter.device_type), adapter.driver_info.trim()));
        facts.insert(1, "memory: wgpu does not tell".to_owned());
        DeviceInfo { backend, index, name: adapter.name, facts }
    };
    Ok(adapters.into_iter().enumerate().map(info).collect())
}

/// Device `index` of the backend and its name, ready for use.
///
/// # Errors
/// When there is no such device.
pub fn open(backend: BackendKind, index: usize) -> Result<(WgpuDevice, String)> {
    let mut adapters = adapters(backend);
    if adapters.is_empty() {
        let driver = match backend {
            BackendKind::Metal => "Metal needs macOS",
            _ => {
                "install the graphics card's Vulkan driver (on Linux also libvulkan1; mesa-vulkan-drivers brings a slow one for the CPU)"
            }
        };
        bail!("no {backend} device was found: {driver}, or use --backend ndarray for the CPU");
    }
    let n = adapters.len();
    if index >= n {
        bail!("--device {index} does not exist: `ember devices` lists {n} for {backend}, from 0");
    }
    let (adapter, device) = adapters.swap_remove(index);
    set_up(backend, &device);
    check_limits(&WgpuRuntime::client(&device))?;
    Ok((device, adapter.name))
}

/// Storage buffers of a kernel: those of the rotation, without the one that CubeCL adds. WebGPU guarantees one less, but
/// native devices offer many more.
const BUFFERS: u32 = 8;

/// Refuses a device that the kernels do not fit.
///
/// # Errors
/// Names what the device lacks.
fn check_limits(client: &ComputeClient<WgpuRuntime>) -> Result<()> {
    let offered = client.properties().hardware.max_bindings;
    if offered < BUFFERS {
        bail!(
            "this device offers kernels {offered} storage buffers, Ember needs {BUFFERS}: use another device or --backend ndarray"
        );
    }
    Ok(())
}

/// Opens the device with the backend's graphics API, once.
fn set_up(backend: BackendKind, device: &WgpuDevice) {
    static OPEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    gpu::prepare();
    // Vulkan and WebGPU name the same device: on this platform they are the same API.
    if !OPEN.lock().unwrap_or_else(PoisonError::into_inner).insert(format!("{device:?}")) {
        return;
    }
    match backend {
        BackendKind::Metal => init_setup::<Metal>(device, RuntimeOptions::default()),
        BackendKind::Vulkan => init_setup::<Vulkan>(device, RuntimeOptions::default()),
        _ => init_setup::<AutoGraphicsApi>(device, RuntimeOptions::default()),
    };
}

/// The adapters of the backend's graphics API, real GPUs first, each as CubeCL names it.
fn adapters(backend: BackendKind) -> Vec<(AdapterInfo, WgpuDevice)> {
    let api = match backend {
        BackendKind::Metal => Metal::backend(),
        BackendKind::Vulkan => Vulkan::backend(),
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
