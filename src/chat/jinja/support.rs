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
        let what = describe_unknown(instruction, state)?;
        Some(Unsupported { line: code.get_line(at).unwrap_or(0), what })
    })
}

fn describe_unknown(instruction: &Instruction<'_>, state: &mut State<'_, '_>) -> Option<String> {
    let is = |error: Option<minijinja::Error>, kind| error.is_some_and(|error| error.kind() == kind);
    // A name that is known fails for want of arguments, or not at all.
    match *instruction {
        Instruction::ApplyFilter(name, ..) => {
            is(state.apply_filter(name, &[]).err(), ErrorKind::UnknownFilter)
                .then(|| format!("unknown filter: filter {name} is unknown"))
        }
        Instruction::PerformTest(name, ..) => is(state.perform_test(name, &[]).err(), ErrorKind::UnknownTest)
            .then(|| format!("unknown test: test {name} is unknown")),
        Instruction::CallMethod(name, _) => {
            (!strings::METHODS.contains(&name)).then(|| format!("unknown method: method {name} is unknown"))
        }
        Instruction::CallFunction(name, _) => {
            MISSING_FUNCTIONS.contains(&name).then(|| format!("unknown function: function {name} is unknown"))
        }
        _ => None,
    }
}
