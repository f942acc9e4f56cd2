//! Device classes: what CubeCL's runtimes report for them, as far as kernels and their tables ask.
use crate::language::{Cuda, Metal, SpirV, Wgsl};
use crate::runtime::Class;
use cubecl::WgpuCompilationOptions;
use cubecl::ir::features::{MmaConfig, Plane, TypeUsage};
use cubecl::ir::{
    AddressType, DeviceProperties, ElemType, FloatKind, HardwareProperties, MemoryDeviceProperties,
};
use cubecl::profile::TimingMethod;
use cubecl_cpp::DialectWmmaCompiler;
use cubecl_cpp::cuda::arch::CudaArchitecture;
use cubecl_cpp::cuda::mma::CudaWmmaCompiler;
use cubecl_cpp::metal::MslDialect;
use cubecl_cpp::metal::arch::MetalArchitecture;
use cubecl_cpp::register_supported_types;
use cubecl_cpp::shared::{CompilationOptions, CppSupportedFeatures, register_wmma_features};

/// A device with planes of `planes` units (smallest, largest) and `shared` bytes of shared memory.
fn device(planes: (u32, u32), shared: usize) -> DeviceProperties {
    let hardware = HardwareProperties {
        load_width: 128,
        plane_size_min: planes.0,
        plane_size_max: planes.1,
        max_bindings: 31,
        max_shared_memory_size: shared,
        max_cube_count: (65_535, 65_535, 65_535),
        max_units_per_cube: 1024,
        max_cube_dim: (1024, 1024, 64),
        num_streaming_multiprocessors: None,
        num_tensor_cores: None,
        min_tensor_cores_dim: None,
        num_cpu_cores: None,
        max_vector_size: 4,
    };
    let memory = MemoryDeviceProperties { max_page_size: (1 << 31) - 1, alignment: 64 };
    DeviceProperties::new(Default::default(), memory, hardware, TimingMethod::System)
}

fn add_types(properties: &mut DeviceProperties, floats: &[FloatKind]) {
    properties.register_address_type(AddressType::U32);
    for ty in
        [ElemType::UInt(cubecl::ir::UIntKind::U32), ElemType::Int(cubecl::ir::IntKind::I32), ElemType::Bool]
    {
        properties.register_type_usage(ty, TypeUsage::all());
    }
    for &kind in floats {
        properties.register_type_usage(ElemType::Float(kind), TypeUsage::all());
    }
}

/// WebGPU: the limits that every implementation grants, except for shared memory, of which it is half; and a device
/// with subgroups of one size.
pub fn webgpu() -> [Class<Wgsl>; 2] {
    let mut least = device((8, 128), 32 << 10);
    least.memory = MemoryDeviceProperties { max_page_size: 128 << 20, alignment: 256 };
    // One more than WebGPU guarantees, which native devices exceed: `src/backend/gpu.rs` refuses those that do not.
    least.hardware.max_bindings = 8;
    least.hardware.max_units_per_cube = 256;
    least.hardware.max_cube_dim = (256, 256, 64);
    let mut native = device((32, 32), 32 << 10);
    native.features.plane.insert(Plane::Ops);
    [("wgsl-least", least), ("wgsl-subgroups", native)].map(|(name, mut properties)| {
        add_types(&mut properties, &[FloatKind::F32]);
        Class { name, properties, options: WgpuCompilationOptions::default() }
    })
}

/// Vulkan: nothing optional, planes of one size, and cooperative matrices with planes of one size (NVIDIA) or two (AMD).
pub fn vulkan() -> [Class<SpirV>; 4] {
    let classes = [
        ("spirv-least", (8, 32), false),
        ("spirv-planes", (32, 32), false),
        ("spirv-nvidia", (32, 32), true),
        ("spirv-amd", (32, 64), true),
    ];
    classes.map(|(name, planes, matrices)| {
        let mut properties = device(planes, 32 << 10);
        add_types(&mut properties, &[FloatKind::F32]);
        properties.features.plane.insert(Plane::Sync);
        properties.features.plane.insert(Plane::NonUniformControlFlow);
        if name != "spirv-least" {
            properties.features.plane.insert(Plane::Ops);
        }
        if matrices {
            add_types(&mut properties, &[FloatKind::F16]);
            let half = ElemType::Float(FloatKind::F16).into();
            for cd_type in [half, ElemType::Float(FloatKind::F32).into()] {
                let config = MmaConfig { a_type: half, b_type: half, cd_type, m: 16, n: 16, k: 16 };
                properties.features.matmul.cmma.insert(config);
            }
        }
        let mut options = WgpuCompilationOptions { supports_vulkan: true, ..Default::default() };
        options.vulkan.max_spirv_version = (1, 6);
        Class { name, properties, options }
    })
}

/// Apple's GPUs.
pub fn metal() -> Class<Metal> {
    let mut properties = device((32, 32), 32 << 10);
    add_types(&mut properties, &[FloatKind::F16, FloatKind::F32]);
    properties.features.plane.insert(Plane::Ops);
    properties.features.plane.insert(Plane::Sync);
    register_wmma_features(
        MslDialect::supported_wmma_combinations(&MetalArchitecture::Metal3),
        &mut properties,
    );
    Class { name: "metal", properties, options: CompilationOptions::default() }
}

/// NVIDIA's GPUs by compute capability: Turing, Ampere, Hopper.
pub fn cuda() -> [Class<Cuda>; 3] {
    let classes = [("sm_75", 75, 64 << 10), ("sm_80", 80, 163 << 10), ("sm_90", 90, 227 << 10)];
    classes.map(|(name, version, shared)| {
        let mut properties = device((32, 32), shared);
        properties.memory.alignment = 512;
        properties.hardware.max_vector_size = 16;
        register_supported_types(&mut properties);
        properties.features.plane = Plane::Ops | Plane::Sync | Plane::NonUniformControlFlow;
        properties.features.copy_async = version >= 80;
        let matrices = CudaWmmaCompiler::supported_wmma_combinations(&CudaArchitecture { version });
        register_wmma_features(matrices, &mut properties);
        let supports_features = CppSupportedFeatures {
            fast_math: true,
            grid_constants: true,
            clusters: version >= 90,
            elect_sync: version >= 90,
            fast_tanh: true,
        };
        Class { name, properties, options: CompilationOptions { warp_size: 32, supports_features } }
    })
}
