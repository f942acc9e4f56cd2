//! Failures of devices, which CubeCL does not return as errors.
//!
//! CubeCL runs a device on a thread of its own, named `DSD-` or `DSU-` and the two numbers of its [`DeviceId`]. When a
//! task panics there (an allocation that the driver refuses, a kernel that it does not compile), the thread goes on with
//! the next task, and the caller reads zeros. A panic hook keeps the first such message of each device, and [`guard`]
//! returns it as an error, from then on. Devices of two runtimes with the same number share a thread, and so a failure.
use crate::GpuError;
use cubecl::device::DeviceId;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo, catch_unwind, resume_unwind};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;

/// A device's failure, if it has failed, and the calls of [`guard`] that are under way for it.
#[derive(Default)]
struct Health {
    failure: Option<String>,
    guards: usize,
}

static DEVICES: Mutex<BTreeMap<DeviceId, Health>> = Mutex::new(BTreeMap::new());

thread_local! {
    /// The device of the innermost [`guard`] on this thread.
    static GUARDED: Cell<Option<DeviceId>> = const { Cell::new(None) };
}

/// The result of `work`, which uses `device`, or the failure of the device, before or meanwhile. A failed device is not
/// asked again, and a panic that its failure leads to on this thread is caught.
///
/// # Errors
/// Those of `work`, and [`GpuError::Device`].
pub fn guard<T, E: From<GpuError>>(device: DeviceId, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    watch();
    if let Some(failure) = health(|devices| enter(devices.entry(device).or_default())) {
        return Err(GpuError::Device(failure).into());
    }
    let outer = GUARDED.replace(Some(device));
    // After a failure nothing that `work` touched is used again: every later guard of the device refuses.
    let output = catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(outer);
    match (health(|devices| leave(devices.entry(device).or_default())), output) {
        (Some(failure), _) => Err(GpuError::Device(failure).into()),
        (None, Ok(output)) => output,
        (None, Err(panic)) => resume_unwind(panic),
    }
}

fn enter(health: &mut Health) -> Option<String> {
    health.guards += usize::from(health.failure.is_none());
    health.failure.clone()
}

fn leave(health: &mut Health) -> Option<String> {
    health.guards -= 1;
    health.failure.clone()
}

fn health<T>(look: impl FnOnce(&mut BTreeMap<DeviceId, Health>) -> T) -> T {
    let mut devices: MutexGuard<'_, _> = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    look(&mut devices)
}

/// Installs the panic hook, once. The hook before it still reports every panic but those that a guard returns as an
/// error. A hook set later must pass panics on, as this one does.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !becomes_an_error(panic) {
                report(panic);
            }
        }));
    });
}

/// Keeps a panic of a device's thread. Whether a guard returns this panic, or the failure that led to it, as an error.
fn becomes_an_error(panic: &PanicHookInfo<'_>) -> bool {
    if let Some(device) = thread::current().name().and_then(device_of) {
        let message = panic.payload_as_str().unwrap_or("unknown failure");
        return health(|devices| {
            let health = devices.entry(device).or_default();
            health.failure.get_or_insert_with(|| message.to_owned());
            health.guards > 0
        });
    }
    let Some(device) = GUARDED.get() else { return false };
    health(|devices| devices.get(&device).is_some_and(|health| health.failure.is_some()))
}

/// The device that a thread of this name runs.
fn device_of(thread: &str) -> Option<DeviceId> {
    let numbers = thread.strip_prefix("DSD-").or_else(|| thread.strip_prefix("DSU-"))?;
    let (type_id, index_id) = numbers.split_once('-')?;
    Some(DeviceId::new(type_id.parse().ok()?, index_id.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that no runtime gives.
    fn device(index: u16) -> DeviceId {
        DeviceId::new(900, index)
    }

    /// Panics as a task of CubeCL's does.
    fn fail(device: DeviceId, message: &'static str) {
        let name = format!("DSD-{}-{}", device.type_id, device.index_id);
        let thread = thread::Builder::new().name(name).spawn(move || panic!("{message}")).expect("a thread");
        thread.join().expect_err("it panics");
    }

    fn guarded(device: DeviceId, work: impl FnOnce() -> u32) -> Result<u32, String> {
        guard(device, || Ok::<u32, GpuError>(work())).map_err(|error| error.to_string())
    }

    #[test]
    fn threads_name_their_device() {
        assert_eq!(device_of("DSD-3-0"), Some(DeviceId::new(3, 0)));
        assert_eq!(device_of("DSU-0-12"), Some(DeviceId::new(0, 12)));
        for other in ["main", "DSD-3", "DSD-x-0", "DSX-3-0", "worker-3-0"] {
            assert_eq!(device_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_failure_stays_with_its_device() {
        assert_eq!(guarded(device(0), || 1), Ok(1));
        let failed = Err("the device failed: out of memory".to_owned());
        let meanwhile = || {
            fail(device(0), "out of memory");
            fail(device(0), "a consequence");
            2
        };
        assert_eq!(guarded(device(0), meanwhile), failed);
        assert_eq!(guarded(device(0), || unreachable!("the device is not asked")), failed);
        assert_eq!(guarded(device(1), || 3), Ok(3));
    }

    #[test]
    fn the_panic_that_a_failure_leads_to_is_caught() {
        let consequence = || {
            fail(device(2), "lost");
            panic!("no answer from the device")
        };
        assert_eq!(guarded(device(2), consequence), Err("the device failed: lost".to_owned()));
    }

    #[test]
    fn other_panics_pass_through() {
        let unrelated = catch_unwind(|| guarded(device(3), || panic!("a mistake of the caller")));
        let message = unrelated.expect_err("it panicked");
        assert_eq!(message.downcast_ref(), Some(&"a mistake of the caller"));
        assert_eq!(guarded(device(3), || 4), Ok(4));
    }
}
