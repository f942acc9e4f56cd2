//! The slash commands of the chat.
use std::path::PathBuf;

/// The text of `/help`.
pub const HELP: &str = "\
/help             this list
/exit             leave (also Ctrl-D)
/reset            forget the conversation, keep the system prompt
/system [TEXT]    show the system prompt, or set it; `/system none` removes it
/think [on|off]   show the thinking switch, or set it; `/think default` leaves it to the template
/image [PATH]     attach an image to the next message (once for each), or list what is attached; `/image none` detaches
/save FILE        write the conversation as JSON, which `ember render` reads
/set [NAME VALUE] show the settings, or change one: temp, top-k, max-tokens, stop and the other flags of generation
/info             the model, the projector, the context in use, the settings
/regen            answer the last message again

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
    Save(PathBuf),
    Set(Option<(String, String)>),
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
        "save" => {
            return non_empty(rest)
                .map(|file| ChatCommand::Save(file.into()))
                .ok_or_else(|| "/save needs a file name".into());
        }
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
        path => ImageCommand::Attach(typed_path(path, std::env::home_dir())),
    }
}

/// A path as people type it or drop it on a terminal: in quotes, with escaped spaces, or from the home folder on.
fn typed_path(text: &str, home: Option<PathBuf>) -> PathBuf {
    let quoted = ['"', '\''].iter().find_map(|&quote| text.strip_prefix(quote)?.strip_suffix(quote));
    let text = match quoted {
        Some(path) => path.to_owned(),
        // On Windows it separates folders.
        None if cfg!(windows) => text.to_owned(),
        None => text.replace("\\ ", " "),
    };
    match (text.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => text.into(),
    }
}

fn setting(rest: &str) -> Result<Option<(String, String)>, String> {
    match split_word(rest) {
        ("", _) => Ok(None),
        (name, "") => Err(format!("/set {name} needs a value")),
        (name, value) => Ok(Some((name.trim_start_matches('-').replace('_', "-"), value.to_owned()))),
    }
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
            ("/save my chat.json", ChatCommand::Save("my chat.json".into())),
            ("/image", ChatCommand::Image(ImageCommand::List)),
            ("/image none", ChatCommand::Image(ImageCommand::Detach)),
            ("/image a b.png ", ChatCommand::Image(ImageCommand::Attach("a b.png".into()))),
            ("/set", ChatCommand::Set(None)),
            ("/set top_k 40", ChatCommand::Set(Some(("top-k".into(), "40".into())))),
            ("/set --stop a b", ChatCommand::Set(Some(("stop".into(), "a b".into())))),
        ] {
            assert_eq!(parse(text), Input::Command(expected), "{text}");
        }
    }

    #[test]
    fn paths_are_read_as_they_are_typed() {
        let path = |text| typed_path(text, Some("/home/me".into()));
        for (text, expected) in [
            ("a.png", "a.png"),
            ("\"a b.png\"", "a b.png"),
            ("'/x/a b.png'", "/x/a b.png"),
            ("it's.png", "it's.png"),
            ("~/a.png", "/home/me/a.png"),
            ("~a.png", "~a.png"),
        ] {
            assert_eq!(path(text), PathBuf::from(expected), "{text}");
        }
        if !cfg!(windows) {
            assert_eq!(path("a\\ b.png"), PathBuf::from("a b.png"));
        }
        assert_eq!(typed_path("~/a.png", None), PathBuf::from("~/a.png"));
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
    }
}
