//! A runtime that compiles what is launched and keeps the text; with an emulator it also runs it.
//!
//! Without one, memory is never allocated: handles are given out, written data is dropped and zeros are read back.
use crate::emulator::{Edit, Emulator};
use crate::language::Language;
use cubecl::backtrace::BackTrace;
use cubecl::bytes::Bytes;
use cubecl::client::ComputeClient;
use cubecl::device::{Device, DeviceId, DeviceService, ServerUtilitiesHandle};
use cubecl::future::DynFut;
use cubecl::ir::{DeviceProperties, TargetProperties};
use cubecl::prelude::*;
use cubecl::profile::ProfileDuration;
use cubecl::server::{
    Binding, ComputeServer, CopyDescriptor, CubeCount, IoError, KernelArguments, ProfileError,
    ProfilingToken, ServerCommunication, ServerError, ServerUtilities,
};
use cubecl::stream_id::StreamId;
use cubecl::zspace::{Shape, Strides};
use cubecl::{Compiler, CubeTask};
use cubecl_runtime::allocator::ContiguousMemoryLayoutPolicy;
use cubecl_runtime::logging::ServerLogger;
use cubecl_runtime::memory_management::{ManagedMemoryHandle, MemoryAllocationMode, MemoryUsage};
use cubecl_runtime::storage::{ComputeStorage, ManagedResource, StorageHandle, StorageId};
use cubecl_runtime::timestamp_profiler::TimestampProfiler;
use cubecl_runtime::validation::{validate_cube_dim, validate_units};
use ember_kernels_cubecl::Gpu;
use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

/// A kernel that was launched.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The function it is written in.
    pub name: String,
    /// The comptime arguments.
    pub arguments: String,
    /// Units of a cube.
    pub units: u32,
    /// The compiler's output.
    pub code: Code,
}

/// A compiled kernel.
#[derive(Clone, Debug, Default)]
pub struct Code {
    /// The text, or a listing.
    pub text: String,
    /// The module, where the target takes words.
    pub words: Vec<u32>,
    /// Bytes of shared memory, where the compiler counts them.
    pub shared_memory: Option<usize>,
    /// True for each buffer that the kernel may write, where the emulator runs it.
    pub writable: Vec<bool>,
}

/// Events on a device.
#[derive(Debug, Default)]
pub struct Log {
    /// Every kernel once, in the order of first launches.
    pub kernels: Vec<Kernel>,
    /// Launches that the device would refuse.
    pub faults: Vec<String>,
}

/// A device class of a language: what devices of that class report, and how kernels are compiled for them.
pub struct Class<L: Language> {
    /// For messages and file names.
    pub name: &'static str,
    /// Properties that devices report.
    pub properties: DeviceProperties,
    /// Options of the compiler.
    pub options: <L::Compiler as Compiler>::CompilationOptions,
}

/// The runtime of devices that speak `L`.
pub struct TextRuntime<L>(PhantomData<L>);

impl<L> Clone for TextRuntime<L> {
    fn clone(&self) -> Self {
        Self(PhantomData)
    }
}

impl<L> fmt::Debug for TextRuntime<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TextRuntime")
    }
}

impl<L: Language> TextRuntime<L> {
    /// A fresh device that runs nothing.
    pub fn gpu(class: Class<L>) -> Gpu<Self> {
        Self::start(TextServer::new(class))
    }

    /// A fresh device that runs what is launched after `edit` has changed its text; `L` must be CUDA C++.
    pub fn emulated(class: Class<L>, edit: Edit) -> Gpu<Self> {
        let mut server = TextServer::new(class);
        let memory = &server.utilities.properties.memory;
        server.emulator = Some(Emulator::new(memory, server.utilities.logger.clone(), edit));
        Self::start(server)
    }

    fn start(server: TextServer<L>) -> Gpu<Self> {
        // Devices are process-wide and keyed by their number.
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let device = TextDevice(NEXT.fetch_add(1, Ordering::Relaxed));
        Gpu::new(ComputeClient::init(&device, server), &device)
    }
}

impl<L: Language> Runtime for TextRuntime<L> {
    type Compiler = L::Compiler;
    type Server = TextServer<L>;
    type Device = TextDevice;

    fn client(device: &TextDevice) -> ComputeClient<Self> {
        ComputeClient::load(device)
    }

    fn name(_client: &ComputeClient<Self>) -> &'static str {
        "text"
    }

    fn max_cube_count() -> (u32, u32, u32) {
        (65_535, 65_535, 65_535)
    }

    fn can_read_tensor(_shape: &Shape, _strides: &Strides) -> bool {
        true
    }

    fn target_properties() -> TargetProperties {
        // Only the layout of manual matrix instructions, which no kernel uses.
        TargetProperties { mma: Default::default() }
    }

    fn enumerate_devices(_type_id: u16, _info: &Mutex<Log>) -> Vec<DeviceId> {
        Vec::new()
    }
}

/// The number of a device.
#[derive(Clone, Debug, Default)]
pub struct TextDevice(u16);

impl Device for TextDevice {
    fn from_id(id: DeviceId) -> Self {
        Self(id.index_id)
    }

    fn to_id(&self) -> DeviceId {
        DeviceId::new(0, self.0)
    }
}

/// The queue of a device.
pub struct TextServer<L: Language> {
    options: <L::Compiler as Compiler>::CompilationOptions,
    seen: HashSet<KernelId>,
    emulator: Option<Emulator>,
    utilities: Arc<ServerUtilities<Self>>,
    timestamps: TimestampProfiler,
}

impl<L: Language> fmt::Debug for TextServer<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TextServer")
    }
}

impl<L: Language> TextServer<L> {
    fn new(class: Class<L>) -> Self {
        let policy = ContiguousMemoryLayoutPolicy::new(class.properties.memory.alignment as usize);
        let logger = Arc::new(ServerLogger::default());
        Self {
            options: class.options,
            seen: HashSet::new(),
            emulator: None,
            utilities: Arc::new(ServerUtilities::new(class.properties, logger, Mutex::default(), policy)),
            timestamps: TimestampProfiler::default(),
        }
    }

    /// The reason why the device would refuse a launch, as an error.
    fn check(&self, id: &KernelId, count: &CubeCount, arguments: &KernelArguments) -> Result<(), String> {
        let properties = &self.utilities.properties;
        validate_cube_dim(properties, id).map_err(|error| error.to_string())?;
        validate_units(properties, id).map_err(|error| error.to_string())?;
        // Lengths and scalars, one buffer more, are not counted.
        let (buffers, most) = (arguments.buffers.len(), properties.hardware.max_bindings as usize);
        if buffers > most {
            return Err(format!("{buffers} buffers, {most} allowed"));
        }
        if let CubeCount::Static(x, y, z) = *count {
            let (most_x, most_y, most_z) = properties.hardware.max_cube_count;
            if x > most_x || y > most_y || z > most_z || x * y * z == 0 {
                return Err(format!("a grid of {x} x {y} x {z} cubes"));
            }
        }
        for buffer in &arguments.buffers {
            let start = buffer.offset_start.unwrap_or(0);
            if !start.is_multiple_of(properties.memory.alignment) {
                return Err(format!("a buffer starts at byte {start}"));
            }
        }
        Ok(())
    }

    fn compile(&self, task: &dyn CubeTask<L::Compiler>, mode: ExecutionMode) -> Result<Code, String> {
        let compiled = catch_unwind(AssertUnwindSafe(|| {
            task.compile(&mut L::Compiler::default(), &self.options, mode, task.address_type())
        }))
        .map_err(|panic| panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic".to_owned()))?
        .map_err(|error| error.to_string())?;
        let code = L::code(&compiled.repr.expect("compilers keep what they made"), compiled.source);
        let most = self.utilities.properties.hardware.max_shared_memory_size;
        match code.shared_memory {
            Some(bytes) if bytes > most => Err(format!("{bytes} bytes of shared memory, {most} allowed")),
            _ => Ok(code),
        }
    }
}

/// Storage of nothing.
pub struct NoStorage;

impl ComputeStorage for NoStorage {
    type Resource = ();

    fn alignment(&self) -> usize {
        1
    }

    fn get(&mut self, _handle: &StorageHandle) {}

    fn alloc(&mut self, _size: u64) -> Result<StorageHandle, IoError> {
        Err(IoError::UnsupportedIoOperation { backtrace: BackTrace::capture() })
    }

    fn dealloc(&mut self, _id: StorageId) {}

    fn flush(&mut self) {}
}

/// `name: value, …`, without the arguments that do not decide about the text.
fn comptime_arguments(id: &KernelId) -> String {
    let words: Vec<_> = id.to_string().split_whitespace().map(str::to_owned).collect();
    let all = words.join(" ").replace("ArrayCompilationArg { inplace: None, }", "()");
    let fields = all.split_once("{ ").map_or("", |(_, fields)| fields.trim_end_matches(" }"));
    let named: Vec<_> =
        fields.split(", ").filter(|field| !field.trim_end_matches(',').ends_with(": ()")).collect();
    named.join(", ")
}

impl<L: Language> DeviceService for TextServer<L> {
    fn init(_device: DeviceId) -> Self {
        unreachable!("devices are made by TextRuntime::gpu")
    }

    fn utilities(&self) -> ServerUtilitiesHandle {
        self.utilities.clone()
    }
}

impl<L: Language> ServerCommunication for TextServer<L> {
    const SERVER_COMM_ENABLED: bool = false;
}

impl<L: Language> ComputeServer for TextServer<L> {
    type Kernel = Box<dyn CubeTask<L::Compiler>>;
    type Info = Mutex<Log>;
    type MemoryLayoutPolicy = ContiguousMemoryLayoutPolicy;
    type Storage = NoStorage;

    fn initialize_memory(&mut self, memory: ManagedMemoryHandle, size: u64, _stream: StreamId) {
        if let Some(emulator) = &mut self.emulator {
            emulator.allocate(memory, size);
        }
    }

    fn logger(&self) -> Arc<ServerLogger> {
        self.utilities.logger.clone()
    }

    fn utilities(&self) -> Arc<ServerUtilities<Self>> {
        self.utilities.clone()
    }

    fn read(
        &mut self,
        descriptors: Vec<CopyDescriptor>,
        _stream: StreamId,
    ) -> DynFut<Result<Vec<Bytes>, ServerError>> {
        let mut log = self.utilities.info.lock().expect("nothing panics under the lock");
        if self.emulator.is_some() && !log.faults.is_empty() {
            let reason = log.faults.drain(..).collect::<Vec<_>>().join("\n");
            let error = ServerError::Generic { reason, backtrace: BackTrace::capture() };
            return Box::pin(async move { Err(error) });
        }
        let read = |descriptor: &CopyDescriptor| {
            Bytes::from_bytes_vec(match &mut self.emulator {
                Some(emulator) => emulator.read(&descriptor.handle),
                None => vec![0; descriptor.handle.size_in_used() as usize],
            })
        };
        let bytes = descriptors.iter().map(read).collect();
        Box::pin(async move { Ok(bytes) })
    }

    fn write(&mut self, descriptors: Vec<(CopyDescriptor, Bytes)>, _stream: StreamId) {
        let Some(emulator) = &mut self.emulator else { return };
        for (descriptor, bytes) in descriptors {
            emulator.write(&descriptor.handle, &bytes);
        }
    }

    fn sync(&mut self, _stream: StreamId) -> DynFut<Result<(), ServerError>> {
        Box::pin(async { Ok(()) })
    }

    fn get_resource(
        &mut self,
        _binding: Binding,
        _stream: StreamId,
    ) -> Result<ManagedResource<()>, ServerError> {
        Err(IoError::UnsupportedIoOperation { backtrace: BackTrace::capture() }.into())
    }

    unsafe fn launch(
        &mut self,
        kernel: Self::Kernel,
        count: CubeCount,
        arguments: KernelArguments,
        mode: ExecutionMode,
        _stream: StreamId,
    ) {
        let id = kernel.id();
        // `module::function::Kernel<…>`
        let path = kernel.name().split('<').next().unwrap_or_default();
        let name = path.rsplit("::").nth(1).unwrap_or(path);
        let refused = self.check(&id, &count, &arguments).err();
        let compiled =
            if self.seen.insert(id.clone()) { Some(self.compile(kernel.as_ref(), mode)) } else { None };
        let mut faults: Vec<String> = refused.into_iter().collect();
        if let (Some(emulator), Some(Ok(code))) = (&mut self.emulator, &compiled) {
            faults.extend(emulator.add(&id, code).err());
        }
        let mut log = self.utilities.info.lock().expect("nothing panics under the lock");
        match compiled {
            Some(Ok(code)) => log.kernels.push(Kernel {
                name: name.to_owned(),
                arguments: comptime_arguments(&id),
                units: id.cube_dim.num_elems(),
                code,
            }),
            Some(Err(fault)) => faults.push(fault),
            None => {}
        }
        if let (Some(emulator), true) = (&mut self.emulator, faults.is_empty()) {
            faults.extend(emulator.launch(&id, &count, &arguments).err());
        }
        let launch = format!("{name} {}", comptime_arguments(&id));
        log.faults.extend(faults.into_iter().map(|fault| format!("{launch}: {fault}")));
    }

    fn flush(&mut self, _stream: StreamId) -> Result<(), ServerError> {
        Ok(())
    }

    fn memory_usage(&mut self, _stream: StreamId) -> Result<MemoryUsage, ServerError> {
        Ok(MemoryUsage { number_allocs: 0, bytes_in_use: 0, bytes_padding: 0, bytes_reserved: 0 })
    }

    fn memory_cleanup(&mut self, _stream: StreamId) {}

    fn start_profile(&mut self, _stream: StreamId) -> Result<ProfilingToken, ServerError> {
        Ok(self.timestamps.start())
    }

    fn end_profile(
        &mut self,
        _stream: StreamId,
        token: ProfilingToken,
    ) -> Result<ProfileDuration, ProfileError> {
        self.timestamps.stop(token)
    }

    fn allocation_mode(&mut self, _mode: MemoryAllocationMode, _stream: StreamId) {}
}
