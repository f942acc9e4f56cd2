//! The languages that kernels are compiled to.
use crate::runtime::Code;
use cubecl::Compiler;
use cubecl::prelude::Visibility;
use cubecl_cpp::cuda::{CudaDialect, mma::CudaWmmaCompiler};
use cubecl_cpp::shared::CppCompiler;
use cubecl_spirv::{GLCompute, SpirvCompiler};

/// A target language.
pub trait Language: Send + Sync + 'static {
    /// Its compiler.
    type Compiler: Compiler + Default;

    /// Ending of its files.
    const EXTENSION: &'static str;

    /// What is kept of a compiled kernel.
    fn code(kernel: &<Self::Compiler as Compiler>::Representation, text: String) -> Code;
}

/// WebGPU's shading language.
pub struct Wgsl;

impl Language for Wgsl {
    type Compiler = cubecl::wgpu::WgslCompiler;
    const EXTENSION: &'static str = "wgsl";

    fn code(_kernel: &<Self::Compiler as Compiler>::Representation, text: String) -> Code {
        Code { text, ..Code::default() }
    }
}

/// Vulkan's intermediate language.
pub struct SpirV;

impl Language for SpirV {
    type Compiler = SpirvCompiler<GLCompute>;
    const EXTENSION: &'static str = "spv";

    fn code(kernel: &<Self::Compiler as Compiler>::Representation, text: String) -> Code {
        let words = kernel.assembled_module.clone();
        Code { text, words, shared_memory: Some(kernel.shared_size), ..Code::default() }
    }
}

/// Metal's shading language.
pub struct Metal;

impl Language for Metal {
    type Compiler = cubecl_cpp::MslCompiler;
    const EXTENSION: &'static str = "metal";

    fn code(kernel: &<Self::Compiler as Compiler>::Representation, text: String) -> Code {
        Code { text, shared_memory: Some(kernel.shared_memory_size()), ..Code::default() }
    }
}

/// CUDA C++, which the emulator runs.
pub struct Cuda;

impl Language for Cuda {
    type Compiler = CppCompiler<CudaDialect<CudaWmmaCompiler>>;
    const EXTENSION: &'static str = "cu";

    fn code(kernel: &<Self::Compiler as Compiler>::Representation, text: String) -> Code {
        let writable = kernel.buffers.iter().map(|buffer| matches!(buffer.vis, Visibility::ReadWrite));
        let (shared_memory, writable) = (Some(kernel.shared_memory_size()), writable.collect());
        Code { text, shared_memory, writable, ..Code::default() }
    }
}
