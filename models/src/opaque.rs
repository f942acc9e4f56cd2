//! A backend's own resource in a type that does not mention the backend.
use std::any::{Any, type_name};
use std::fmt;
use std::sync::Arc;

/// Device memory, or whatever else a backend keeps with a matrix, a cache or a step. Cloning shares it.
///
/// `derive(Module)` cannot prove that an associated type of `B` equals that of its inner backend, so weights and pages
/// hold their device part as this instead.
#[derive(Clone)]
pub struct Opaque(Arc<dyn Any + Send + Sync>);

impl Opaque {
    /// Wraps a resource.
    pub fn new<T: Any + Send + Sync>(resource: T) -> Self {
        Self(Arc::new(resource))
    }

    /// The resource.
    ///
    /// # Panics
    /// If it is of another type: it was made by another backend.
    pub fn get<T: Any>(&self) -> &T {
        self.0.downcast_ref().unwrap_or_else(|| panic!("not a {}: made by another backend", type_name::<T>()))
    }

    /// True when both share one resource.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Opaque {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Opaque")
    }
}
