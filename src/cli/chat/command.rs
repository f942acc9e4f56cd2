//! The slash commands of the chat.
use crate::cli::out_file::Existing;
use crate::cli::paths::typed_path;
use std::path::PathBuf;

/// The text of `/help`.
pub const HELP: &str = "\
/help             this list
/exit             leave (also Ctrl-D)
/reset            forget the conversation, keep the system prompt
/system [TEXT]    show the system prompt, or set it; `/system none` removes it
/think [on|off]   show the thinking switch, or set it; `/think default` leaves it to the template
/image [PATH]     attach an image to the next message (once for each), or list what is attached; `/image none` detaches
/save FILE        write the conversation as JSON, which `ember render` reads, to a new file; `/save! FILE` replaces one
/set [NAME VALUE] show the settings, or change one: temp, top-k, max-tokens, stop and the other flags of generation
/unset NAME       put a setting back to the model file's or the default
/info             the model, the projector, the context in use, the settings
/regen            answer the last message again

A path may be quoted, with backslashes before blanks, or a file:// address, as terminals write it when a file is dropped.
A stop text may hold \\n (a line break), \\t, \\xHH and \\u{H..}; \\\\ is a backslash. `/set seed -1` draws a new seed.
A line that ends with \\ goes on in the next one; \"\"\" opens and closes a message of many lines.
A message that starts with / is written with two: //usr/bin.
Ctrl-C stops the answer.";

/// A line that is not a message.
#[derive(Debug, PartialEq, Eq)]
pub enum ChatCommand {
    Help,
    Exit,
    Reset,
    System(Option<String>),
    Think(Option<Think>),
    Image(ImageCommand),
    Save(PathBuf, Existing),
    Set(Option<(String, String)>),
    Unset(String),
    Info,
    Regen,
}

/// A command about the images of the next message.
#[derive(Debug, PartialEq, Eq)]
pub enum ImageCommand {
    List,
    Detach,
    Attach(PathBuf),
}

/// Positions of the thinking switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Think {
    On,
    Off,
    TemplateDefault,
}

/// An input of the user.
#[derive(Debug, PartialEq, Eq)]
pub enum Input {
    Message(String),
    Command(ChatCommand),
    /// A command that cannot be carried out, and why.
    Mistake(String),
}

/// Tells commands from messages.
pub fn parse(text: &str) -> Input {
    let Some(line) = text.trim_start().strip_prefix('/') else {
        return Input::Message(text.to_owned());
    };
    if line.starts_with('/') {
        return Input::Message(line.to_owned());
    }
    let (name, rest) = split_word(line);
    match command(name, rest) {
        Ok(command) => Input::Command(command),
        Err(mistake) => Input::Mistake(mistake),
    }
}

fn command(name: &str, rest: &str) -> Result<ChatCommand, String> {
    let command = match name {
        "system" => return Ok(ChatCommand::System(non_empty(rest))),
        "think" => return think(rest).map(ChatCommand::Think),
        "image" => return Ok(ChatCommand::Image(image(rest))),
        "set" => return setting(rest).map(ChatCommand::Set),
        "unset" => return unset(rest).map(ChatCommand::Unset),
        "save" => return save(rest, Existing::Keep { advice: "`/save! FILE` replaces it" }),
        "save!" => return save(rest, Existing::Replace),
        "help" => ChatCommand::Help,
        "exit" => ChatCommand::Exit,
        "reset" => ChatCommand::Reset,
        "info" => ChatCommand::Info,
        "regen" => ChatCommand::Regen,
        _ => {
            return Err(format!("there is no command /{name}: see /help (a message starts with // instead)"));
        }
    };
    if rest.is_empty() { Ok(command) } else { Err(format!("/{name} takes no argument")) }
}

fn think(rest: &str) -> Result<Option<Think>, String> {
    match rest {
        "" => Ok(None),
        "on" => Ok(Some(Think::On)),
        "off" => Ok(Some(Think::Off)),
        "default" => Ok(Some(Think::TemplateDefault)),
        other => Err(format!("/think takes on, off or default, not `{other}`")),
    }
}

fn image(rest: &str) -> ImageCommand {
    match rest.trim_end() {
        "" => ImageCommand::List,
        "none" => ImageCommand::Detach,
        file => ImageCommand::Attach(path(file)),
    }
}

/// The path that someone typed.
fn path(text: &str) -> PathBuf {
    typed_path(text, std::env::home_dir().as_deref())
}

fn save(rest: &str, existing: Existing) -> Result<ChatCommand, String> {
    match rest.trim_end() {
        "" => Err("/save needs a file name".into()),
        file => Ok(ChatCommand::Save(path(file), existing)),
    }
}

fn setting(rest: &str) -> Result<Option<(String, String)>, String> {
    match split_word(rest) {
        ("", _) => Ok(None),
        (name, "") => Err(format!("/set {name} needs a value")),
        (name, value) => Ok(Some((setting_name(name), value.to_owned()))),
    }
}

fn unset(rest: &str) -> Result<String, String> {
    match split_word(rest) {
        ("", _) => Err("/unset needs the name of a setting".into()),
        (name, "") => Ok(setting_name(name)),
        (name, _) => Err(format!("/unset {name} takes no value")),
    }
}

fn setting_name(typed: &str) -> String {
    typed.trim_start_matches('-').replace('_', "-")
}

fn split_word(text: &str) -> (&str, &str) {
    let text = text.trim();
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim_start())
}

fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEP: Existing = Existing::Keep { advice: "`/save! FILE` replaces it" };

    fn mistake(text: &str) -> String {
        match parse(text) {
            Input::Mistake(mistake) => mistake,
            other => panic!("{text} gave {other:?}"),
        }
    }

    #[test]
    fn commands_with_and_without_arguments() {
        for (text, expected) in [
            ("/help", ChatCommand::Help),
            ("  /exit ", ChatCommand::Exit),
            ("/system", ChatCommand::System(None)),
            ("/system You are  terse.", ChatCommand::System(Some("You are  terse.".into()))),
            ("/think off", ChatCommand::Think(Some(Think::Off))),
            ("/think", ChatCommand::Think(None)),
            ("/save my chat.json", ChatCommand::Save("my chat.json".into(), KEEP)),
            ("/save 'my chat.json' ", ChatCommand::Save("my chat.json".into(), KEEP)),
            ("/save! a.json", ChatCommand::Save("a.json".into(), Existing::Replace)),
            ("/image", ChatCommand::Image(ImageCommand::List)),
            ("/image none", ChatCommand::Image(ImageCommand::Detach)),
            ("/image a b.png ", ChatCommand::Image(ImageCommand::Attach("a b.png".into()))),
            ("/image file:///a%20b.png ", ChatCommand::Image(ImageCommand::Attach("/a b.png".into()))),
            ("/unset top_k", ChatCommand::Unset("top-k".into())),
            ("/set", ChatCommand::Set(None)),
            ("/set top_k 40", ChatCommand::Set(Some(("top-k".into(), "40".into())))),
            ("/set --stop a b", ChatCommand::Set(Some(("stop".into(), "a b".into())))),
        ] {
            assert_eq!(parse(text), Input::Command(expected), "{text}");
        }
    }

    #[test]
    fn messages_pass_as_they_are() {
        assert_eq!(parse("what is 1/2?"), Input::Message("what is 1/2?".into()));
        assert_eq!(parse("//usr/bin is what?"), Input::Message("/usr/bin is what?".into()));
    }

    #[test]
    fn mistakes_are_named() {
        assert!(mistake("/usr/bin").contains("there is no command /usr/bin"));
        assert_eq!(mistake("/exit now"), "/exit takes no argument");
        assert_eq!(mistake("/think maybe"), "/think takes on, off or default, not `maybe`");
        assert_eq!(mistake("/set temp"), "/set temp needs a value");
        assert_eq!(mistake("/save"), "/save needs a file name");
        assert_eq!(mistake("/unset"), "/unset needs the name of a setting");
        assert_eq!(mistake("/unset temp 1"), "/unset temp takes no value");
    }
}
