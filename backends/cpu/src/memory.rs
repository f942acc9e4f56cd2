//! The allocator's behaviour while a model runs on the CPU.

/// Has glibc keep what is freed. By default it returns every large block to the system, and the next operation pays for
/// fresh pages: a tenth of the time of an image's encoding. The peak there grew by 4 %.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn keep_freed_memory() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: `mallopt` may be called at any time; it locks the allocator itself.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 30);
            libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
        }
    });
}

/// Other allocators are left alone.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn keep_freed_memory() {}
