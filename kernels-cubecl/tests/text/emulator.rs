//! Runs CUDA kernels on the CPU: compiles each with g++ for `cuda_on_cpu/emulator.cpp`, which runs it as another process.
use crate::runtime::Code;
use cubecl::ir::MemoryDeviceProperties;
use cubecl::prelude::{CubeDim, KernelId};
use cubecl::server::{Binding, CubeCount, KernelArguments};
use cubecl_runtime::logging::ServerLogger;
use cubecl_runtime::memory_management::{
    ManagedMemoryHandle, MemoryConfiguration, MemoryManagement, MemoryManagementOptions,
};
use cubecl_runtime::storage::BytesStorage;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Changes the text of a kernel before it is compiled.
pub type Edit = fn(String) -> String;

/// The memory of a device, and programs that run its kernels.
pub struct Emulator {
    memory: MemoryManagement<BytesStorage>,
    programs: HashMap<KernelId, Program>,
    edit: Edit,
}

impl Emulator {
    pub fn new(properties: &MemoryDeviceProperties, logger: Arc<ServerLogger>, edit: Edit) -> Self {
        let memory = MemoryManagement::from_configuration(
            BytesStorage::default(),
            properties,
            MemoryConfiguration::ExclusivePages,
            logger,
            MemoryManagementOptions::new("emulator"),
        );
        Self { memory, programs: HashMap::new(), edit }
    }

    /// Memory that holds what no kernel should read: NaN, and numbers beyond every buffer.
    pub fn allocate(&mut self, memory: ManagedMemoryHandle, bytes: u64) {
        let reserved = self.memory.reserve(bytes).expect("the host has memory");
        self.memory.bind(reserved, memory.clone(), 0).expect("it is reserved");
        let mut resource = self.memory.get_resource(memory.binding(), None, None).expect("it is bound");
        resource.write().fill(0xff);
    }

    pub fn read(&mut self, binding: &Binding) -> Vec<u8> {
        self.bytes(binding)[range(binding)].to_vec()
    }

    pub fn write(&mut self, binding: &Binding, bytes: &[u8]) {
        let start = range(binding).start;
        self.bytes(binding)[start..start + bytes.len()].copy_from_slice(bytes);
    }

    /// The whole allocation that a binding lies in.
    fn bytes(&mut self, binding: &Binding) -> &mut [u8] {
        let resource = self.memory.get_resource(binding.memory.clone(), None, None);
        &mut resource.expect("bindings are of this device").write()[..binding.size as usize]
    }

    pub fn add(&mut self, id: &KernelId, code: &Code) -> Result<(), String> {
        let code = Code { text: (self.edit)(code.text.clone()), ..code.clone() };
        self.programs.insert(id.clone(), Program::compile(&code)?);
        Ok(())
    }

    /// Runs a kernel that has been added.
    pub fn launch(
        &mut self,
        id: &KernelId,
        count: &CubeCount,
        arguments: &KernelArguments,
    ) -> Result<(), String> {
        let &CubeCount::Static(x, y, z) = count else { return Err("a grid of unknown size".to_owned()) };
        let CubeDim { x: width, y: height, z: depth } = id.cube_dim;
        let mut launch = Launch { grid: [x, y, z], block: [width, height, depth], ..Launch::default() };
        launch.info.clone_from(&arguments.info.data);
        // Buffers may be parts of one allocation.
        let mut owners: Vec<(*const u8, &Binding)> = Vec::new();
        for binding in &arguments.buffers {
            let bytes = self.bytes(binding);
            let start = bytes.as_ptr();
            let allocation = owners.iter().position(|owner| owner.0 == start).unwrap_or(owners.len());
            if allocation == owners.len() {
                owners.push((start, binding));
                launch.allocations.push(bytes.to_vec());
            }
            let range = range(binding);
            launch.buffers.push([allocation, range.start, range.len()]);
        }
        let program = self.programs.get(id).ok_or("it was not compiled")?;
        if let Some([a, b]) = aliases(&launch.buffers, &program.writable) {
            return Err(format!("buffers {a} and {b} share memory, and the kernel writes it"));
        }
        let results = program.run(&launch)?;
        for ((_, binding), result) in owners.iter().zip(results) {
            self.bytes(binding).copy_from_slice(&result);
        }
        Ok(())
    }
}

/// Where a binding lies in its allocation.
fn range(binding: &Binding) -> std::ops::Range<usize> {
    let start = binding.offset_start.unwrap_or(0) as usize;
    start..start + binding.size_in_used() as usize
}

/// Two of the buffers (allocation, first byte, bytes) that overlap, where the kernel may write one of them: compilers rely on
/// what is read through the other being constant.
pub fn aliases(buffers: &[[usize; 3]], writable: &[bool]) -> Option<[usize; 2]> {
    let overlap = |a: [usize; 3], b: [usize; 3]| a[0] == b[0] && a[1] < b[1] + b[2] && b[1] < a[1] + a[2];
    let mut pairs = (0..buffers.len()).flat_map(|b| (0..b).map(move |a| [a, b]));
    pairs.find(|&[a, b]| (writable[a] || writable[b]) && overlap(buffers[a], buffers[b]))
}

/// What a kernel is launched on.
#[derive(Default)]
pub struct Launch {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// Scalars and lengths, as the kernel's struct has them.
    pub info: Vec<u64>,
    pub allocations: Vec<Vec<u8>>,
    /// Allocation, first byte and bytes of each.
    pub buffers: Vec<[usize; 3]>,
}

impl Launch {
    /// As the program reads it.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut put = |number: u64| bytes.extend(number.to_le_bytes());
        self.grid.iter().chain(&self.block).for_each(|&n| put(n.into()));
        put(self.info.len() as u64);
        self.info.iter().for_each(|&n| put(n));
        put(self.allocations.len() as u64);
        for allocation in &self.allocations {
            bytes.extend((allocation.len() as u64).to_le_bytes());
            bytes.extend(allocation);
        }
        let mut put = |number: usize| bytes.extend((number as u64).to_le_bytes());
        put(self.buffers.len());
        self.buffers.iter().flatten().for_each(|&n| put(n));
        bytes
    }
}

/// Compiled kernels stay here from run to run, by the hash of everything they are made of.
const FOLDER: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/cuda_on_cpu");
/// Where the emulator's sources are.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/text/cuda_on_cpu");
/// What the emulator is made of, for the hash.
const PARTS: [&str; 5] = [
    include_str!("cuda_on_cpu/emulator.cpp"),
    include_str!("cuda_on_cpu/emulator.h"),
    include_str!("cuda_on_cpu/cuda_runtime.h"),
    include_str!("cuda_on_cpu/cuda_fp16.h"),
    include_str!("cuda_on_cpu/mma.h"),
];

/// A kernel that runs on the CPU: the emulator, and a library for it.
pub struct Program {
    emulator: PathBuf,
    kernel: PathBuf,
    writable: Vec<bool>,
}

impl Program {
    pub fn compile(code: &Code) -> Result<Self, String> {
        let kernel =
            code.text.split("__launch_bounds__(").nth(1).and_then(|rest| rest.split([')', '(']).nth(1));
        let kernel = kernel.ok_or("the text has no kernel")?.trim();
        let shared = code.shared_memory.unwrap_or(0);
        let text = format!("{}\nEMULATED_KERNEL({kernel}, {shared})\n", code.text);
        let (emulator, kernel) = (path(&PARTS, "emulator"), path(&(&text, PARTS), kernel));
        let program = Self { emulator, kernel, writable: code.writable.clone() };
        if !program.emulator.exists() {
            compile(&["-O2", "-rdynamic"], PARTS[0], &program.emulator)?;
        }
        if !program.kernel.exists() {
            // Compiled as for the sanitizer, but not linked with it; optimised little, since compiling takes most time.
            compile(&["-Og", "-fsanitize=thread", "-fPIC", "-shared", "-nostdlib"], &text, &program.kernel)?;
        }
        Ok(program)
    }

    /// The allocations after a launch.
    pub fn run(&self, launch: &Launch) -> Result<Vec<Vec<u8>>, String> {
        let output = output(Command::new(&self.emulator).arg(&self.kernel), &launch.to_bytes())?;
        let mut rest = output.as_slice();
        let take = |allocation: &Vec<u8>| rest.split_off(..allocation.len()).map(<[u8]>::to_vec);
        launch
            .allocations
            .iter()
            .map(take)
            .collect::<Option<_>>()
            .ok_or_else(|| "the results are cut".to_owned())
    }
}

/// A path for what is made of `parts`.
fn path(parts: &impl Hash, name: &str) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    Path::new(FOLDER).join(format!("{:016x}-{name}", hasher.finish()))
}

/// Compiles to a file, which appears at once or not at all.
fn compile(options: &[&str], text: &str, file: &Path) -> Result<(), String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let unfinished = file.with_extension(format!("{}-{next}", std::process::id()));
    std::fs::create_dir_all(FOLDER).map_err(|error| format!("{FOLDER}: {error}"))?;
    let mut command = Command::new("g++");
    command.args(["-std=c++17", "-ffp-contract=off", "-U_FORTIFY_SOURCE", "-I", SOURCES]).args(options);
    output(command.args(["-x", "c++", "-", "-o"]).arg(&unfinished), text.as_bytes())?;
    std::fs::rename(unfinished, file).map_err(|error| format!("{}: {error}", file.display()))
}

/// What a command prints; what it says about a failure as an error.
fn output(command: &mut Command, input: &[u8]) -> Result<Vec<u8>, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |error: std::io::Error| format!("{name}: {error}");
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().map_err(failed)?;
    // A command that fails may not read all; what it says matters more.
    let _ = child.stdin.take().expect("it is piped").write_all(input);
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(format!("{name}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()))
    }
}
