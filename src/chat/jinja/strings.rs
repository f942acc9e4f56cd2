//! Methods that Python values have and minijinja's lack.

use minijinja::{Error, State, Value};

/// Called for every method minijinja does not know.
pub(super) fn call_method(
    state: &mut State,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args)
}
