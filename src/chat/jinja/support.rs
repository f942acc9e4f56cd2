//! Constructs of a compiled template that cannot be rendered here, found before anything is rendered.

use super::strings;
use minijinja::machinery::{Instruction, Instructions, get_compiled_template};
use minijinja::{Environment, ErrorKind, State};

/// Functions of jinja2 that the environment lacks. Any other unknown name may be a variable or a macro.
const MISSING_FUNCTIONS: [&str; 3] = ["cycler", "joiner", "lipsum"];

/// A construct that cannot be rendered.
pub(crate) struct Unsupported {
    /// Line of the template, from 1; 0 when unknown.
    pub line: usize,
    /// The construct, in words.
    pub what: String,
}

/// The first construct of the template `name` that cannot be rendered, wherever in the template it stands.
pub(crate) fn unsupported(env: &Environment<'static>, name: &str) -> Option<Unsupported> {
    let template = env.get_template(name).ok()?;
    let compiled = get_compiled_template(&template);
    let mut state = env.empty_state();
    let code = std::iter::once(&compiled.instructions).chain(compiled.blocks.values());
    code.filter_map(|code| first_unsupported(code, &mut state)).min_by_key(|found| found.line)
}

fn first_unsupported(code: &Instructions<'_>, state: &mut State<'_, '_>) -> Option<Unsupported> {
    (0..).map_while(|at| Some((at, code.get(at)?))).find_map(|(at, instruction)| {
        let mut unknown = |kind, name: &str| {
            let is_known = match kind {
                "filter" => knows_filter(state, name),
                "test" => knows_test(state, name),
                "method" => strings::METHODS.contains(&name),
                _ => !MISSING_FUNCTIONS.contains(&name),
            };
            (!is_known).then(|| format!("unknown {kind}: {kind} {name} is unknown"))
        };
        let what = match *instruction {
            Instruction::ApplyFilter(name, arguments, _) => unknown("filter", name).or_else(|| {
                let (kind, index) = name_among_arguments(name)?;
                unknown(kind, constant_argument(code, at, arguments?, index)?)
            }),
            Instruction::PerformTest(name, ..) => unknown("test", name),
            Instruction::CallMethod(name, _) => unknown("method", name),
            Instruction::CallFunction(name, _) => unknown("function", name),
            _ => None,
        };
        Some(Unsupported { line: code.get_line(at).unwrap_or(0), what: what? })
    })
}

// A filter or test that is known fails for want of arguments, or not at all.

fn knows_filter(state: &mut State<'_, '_>, name: &str) -> bool {
    !state.apply_filter(name, &[]).is_err_and(|error| error.kind() == ErrorKind::UnknownFilter)
}

fn knows_test(state: &mut State<'_, '_>, name: &str) -> bool {
    !state.perform_test(name, &[]).is_err_and(|error| error.kind() == ErrorKind::UnknownTest)
}

/// The kind of thing that a filter takes by name, and the position of the argument that names it.
fn name_among_arguments(filter: &str) -> Option<(&'static str, usize)> {
    match filter {
        "map" => Some(("filter", 0)),
        "select" | "reject" => Some(("test", 0)),
        "selectattr" | "rejectattr" => Some(("test", 1)),
        _ => None,
    }
}

/// An argument of the filter at `at`, if it and those after it are constants. The filtered value counts as one of `count`.
fn constant_argument<'c>(code: &'c Instructions<'_>, at: u32, count: u16, index: usize) -> Option<&'c str> {
    let given = usize::from(count).checked_sub(1).filter(|given| index < *given)?;
    let distance =
        |index: usize| u32::try_from(given - index).ok().and_then(|distance| at.checked_sub(distance));
    let constant = |index| match code.get(distance(index)?)? {
        Instruction::LoadConst(value) => Some(value),
        _ => None,
    };
    (index + 1..given).all(|index| constant(index).is_some()).then_some(())?;
    constant(index)?.as_str()
}
