//! Every kernel that the tables can choose, compiled for every target without a device.
//!
//! The public operations run on a runtime that compiles and keeps what is launched instead of running it, once for each
//! device class. Launches that the class would refuse are faults. WGSL is validated by naga. With
//! `EMBER_KERNEL_TEXT_DIR` set, texts and a list are written there: `scripts/nvrtc_check.py` compiles the CUDA ones.
//!
//! The CUDA kernels are also run on the CPU, by the tests of `tests/suite` and under the rules of
//! `cuda_on_cpu/emulator.cpp`, which needs g++ on an x86-64 machine.
mod classes;
mod emulation;
mod emulator;
mod language;
mod operations;
mod runtime;
mod under_test;

// What runs: `suite/probe.rs` measures time, of which the emulator knows nothing.
#[path = "../suite/activation.rs"]
mod activation;
#[path = "../suite/attention.rs"]
mod attention;
#[path = "../suite/attention_support.rs"]
mod attention_support;
#[path = "../suite/blocks.rs"]
mod blocks;
#[path = "../suite/device.rs"]
mod device;
#[path = "../suite/kv_reference.rs"]
mod kv_reference;
#[path = "../suite/linear.rs"]
mod linear;
#[path = "../suite/norm.rs"]
mod norm;
#[path = "../suite/not_finite.rs"]
mod not_finite;
#[path = "../suite/pick.rs"]
mod pick;
#[path = "../suite/rope.rs"]
mod rope;
#[path = "../suite/rows.rs"]
mod rows;

use language::Language;
use runtime::{Class, Kernel, TextRuntime};
use std::fmt::Write as _;
use std::path::Path;

/// Runs every operation on a device of `class` and returns the kernels.
fn kernels<L: Language>(class: Class<L>) -> Vec<Kernel> {
    let name = class.name;
    let gpu = TextRuntime::gpu(class);
    operations::all(&gpu);
    cubecl::future::block_on(gpu.client.sync()).expect("nothing runs");
    let log = gpu.client.info().lock().expect("nothing panics under the lock");
    assert!(log.faults.is_empty(), "{name}: {} faults, first:\n{}", log.faults.len(), log.faults[0]);
    assert!(!log.kernels.is_empty());
    if let Some(folder) = std::env::var_os("EMBER_KERNEL_TEXT_DIR") {
        write::<L>(&Path::new(&folder).join(name), &log.kernels).expect("the folder can be written");
    }
    log.kernels.clone()
}

/// Writes a file for each kernel and `kernels.tsv`: file, function, comptime arguments, units, bytes of shared memory.
fn write<L: Language>(folder: &Path, kernels: &[Kernel]) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let mut list = String::new();
    for (i, kernel) in kernels.iter().enumerate() {
        let file = format!("{i:03}-{}.{}", kernel.name, L::EXTENSION);
        if kernel.code.words.is_empty() {
            std::fs::write(folder.join(&file), &kernel.code.text)?;
        } else {
            let bytes: Vec<u8> = kernel.code.words.iter().flat_map(|word| word.to_le_bytes()).collect();
            std::fs::write(folder.join(&file), bytes)?;
        }
        let shared = kernel.code.shared_memory.unwrap_or(0);
        let _ = writeln!(list, "{file}\t{}\t{}\t{}\t{shared}", kernel.name, kernel.arguments, kernel.units);
    }
    std::fs::write(folder.join("kernels.tsv"), list)
}

#[test]
fn wgsl_is_valid() {
    use naga::valid::{Capabilities, ValidationFlags, Validator};
    for class in classes::webgpu() {
        let shared = class.properties.hardware.max_shared_memory_size;
        let subgroups = class.properties.features.plane.contains(cubecl::ir::features::Plane::Ops);
        let capabilities = if subgroups { Capabilities::SUBGROUP } else { Capabilities::empty() };
        for kernel in kernels(class) {
            let text = &kernel.code.text;
            let module = naga::front::wgsl::parse_str(text)
                .unwrap_or_else(|error| panic!("{}\n{text}", error.emit_to_string(text)));
            let mut validator = Validator::new(ValidationFlags::all(), capabilities);
            validator
                .subgroup_stages(naga::valid::ShaderStages::COMPUTE)
                .subgroup_operations(naga::valid::SubgroupOperationSet::all());
            if let Err(error) = validator.validate(&module) {
                panic!("{}\n{text}", error.emit_to_string(text));
            }
            let used = shared_memory(&module);
            assert!(used <= shared, "{} {}: {used} bytes of shared memory", kernel.name, kernel.arguments);
        }
    }
}

/// Bytes of shared memory that a module declares.
fn shared_memory(module: &naga::Module) -> usize {
    module
        .global_variables
        .iter()
        .filter(|(_, variable)| variable.space == naga::AddressSpace::WorkGroup)
        .map(|(_, variable)| module.types[variable.ty].inner.size(module.to_ctx()) as usize)
        .sum()
}

#[test]
fn spirv_is_assembled() {
    for class in classes::vulkan() {
        for kernel in kernels(class) {
            assert_eq!(kernel.code.words[0], 0x0723_0203, "{}", kernel.name);
        }
    }
}

#[test]
fn metal_has_entry_points() {
    for kernel in kernels(classes::metal()) {
        assert!(
            kernel.code.text.contains(&format!("[[kernel]]\nvoid {}", kernel.name)),
            "{}",
            kernel.code.text
        );
    }
}

#[test]
fn cuda_has_entry_points() {
    for class in classes::cuda() {
        for kernel in kernels(class) {
            assert!(kernel.code.text.contains("extern \"C\" __global__ void"), "{}", kernel.code.text);
        }
    }
}
