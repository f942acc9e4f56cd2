//! The vocabulary of a Hugging Face folder.

mod other;

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::pre_tokenizer::{DIGIT, GPT2, LLAMA_BPE, PreTokenizer, TEKKEN};
use super::vocab::{DEFAULT_TEMPLATE, MergePair, split_merge};
use super::{TokenKind, TokenizerError, Vocab};
use crate::checkpoint::GenerationConfig;
use crate::text;

/// tokenizer.json, as far as it matters here.
#[derive(Deserialize)]
struct TokenizerJson {
    model: Model,
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    normalizer: Option<Value>,
    pre_tokenizer: Option<Value>,
    post_processor: Option<Value>,
}

#[derive(Deserialize)]
struct Model {
    /// Missing in the oldest files, which are BPE.
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    vocab: Value,
    #[serde(default)]
    merges: Vec<MergeRule>,
    #[serde(default)]
    ignore_merges: bool,
    #[serde(default)]
    byte_fallback: bool,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
}

/// Files before 2024 write `"a b"`, later ones `["a", "b"]`.
#[derive(Deserialize)]
#[serde(untagged)]
enum MergeRule {
    Pair(String, String),
    Line(String),
}

#[derive(Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
    #[serde(default)]
    special: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    single_word: bool,
}

/// tokenizer_config.json.
#[derive(Default, Deserialize)]
struct TokenizerConfig {
    bos_token: Option<TokenText>,
    eos_token: Option<TokenText>,
    add_bos_token: Option<bool>,
    chat_template: Option<ChatTemplate>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TokenText {
    Text(String),
    Token { content: String },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ChatTemplate {
    One(String),
    Named(Vec<NamedTemplate>),
}

/// chat_template.json or processor_config.json.
#[derive(Default, Deserialize)]
struct ProcessorConfig {
    chat_template: Option<ChatTemplate>,
}

#[derive(Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

/// Reads the vocabulary of `folder`.
pub(super) fn read_vocab(folder: &Path) -> Result<Vocab<'static>, TokenizerError> {
    let path = folder.join("tokenizer.json");
    let Some(text) = present(read(&path))? else { return other::read_vocab(folder) };
    let file: TokenizerJson = parse(&path, &text)?;
    if file.model.byte_fallback && folder.join(other::SENTENCEPIECE).is_file() {
        return other::read_vocab(folder);
    }
    let config: TokenizerConfig = read_optional(&folder.join("tokenizer_config.json"))?;
    let generation = GenerationConfig::read(folder).map_err(Box::new)?;
    let unsupported = |what: String| TokenizerError::Unsupported { path: path.clone(), what };

    check_model(&file.model)?;
    let (tokens, kinds) = tokens(&file).map_err(unsupported)?;
    let mut pre_tokenizer = pre_tokenizer(&file, &unsupported)?;
    pre_tokenizer.ignore_merges = file.model.ignore_merges;
    let find = |name: &str, token: Option<TokenText>| match token.map(TokenText::into_text) {
        None => Ok(None),
        Some(text) => match (0..).zip(&tokens).find(|(_, token)| **token == text) {
            Some((id, _)) => Ok(Some(id)),
            None => Err(unsupported(format!(
                "{name} \"{text}\" of tokenizer_config.json is not in the vocabulary"
            ))),
        },
    };
    let bos = find("bos_token", config.bos_token)?;
    let eos = find("eos_token", config.eos_token)?;
    Ok(Vocab {
        add_bos: config.add_bos_token.unwrap_or_else(|| starts_with_bos(&file, bos, &tokens)),
        merges: file.model.merges.into_iter().enumerate().map(MergeRule::split).collect::<Result<_, _>>()?,
        bos,
        eos,
        end_of_generation: generation.eos_token_ids,
        chat_templates: chat_templates(folder, config.chat_template)?,
        pre_tokenizer,
        sentencepiece: None,
        tokens: tokens.into(),
        kinds,
    })
}

/// Refuses every model that is not byte-level BPE.
fn check_model(model: &Model) -> Result<(), TokenizerError> {
    let kind = model.kind.as_deref().unwrap_or("BPE");
    let affix = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    let refused = if kind != "BPE" {
        kind
    } else if model.byte_fallback {
        "BPE with byte_fallback (SentencePiece)"
    } else if affix(&model.continuing_subword_prefix) || affix(&model.end_of_word_suffix) {
        "BPE with subword prefixes or suffixes"
    } else {
        return Ok(());
    };
    Err(TokenizerError::UnknownModel(refused.to_owned()))
}

/// Every token by id; ids that no token has are padding.
fn tokens(file: &TokenizerJson) -> Result<(Vec<String>, Vec<TokenKind>), String> {
    let vocab = file.model.vocab.as_object().ok_or("model.vocab is not an object")?;
    let mut entries = BTreeMap::new();
    for (text, id) in vocab {
        let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
        let id = id.ok_or_else(|| format!("the id of token \"{text}\" is not a 32-bit number"))?;
        if let Some((other, _)) = entries.insert(id, (text.clone(), TokenKind::Normal)) {
            return Err(format!("tokens \"{other}\" and \"{text}\" have the same id {id}"));
        }
    }
    for token in &file.added_tokens {
        if token.lstrip || token.rstrip || token.single_word {
            let text = &token.content;
            return Err(format!("added token \"{text}\" uses lstrip, rstrip or single_word: not supported"));
        }
        let kind = if token.special { TokenKind::Control } else { TokenKind::UserDefined };
        match entries.insert(token.id, (token.content.clone(), kind)) {
            Some((other, _)) if other != token.content => {
                return Err(format!(
                    "tokens \"{other}\" and \"{}\" have the same id {}",
                    token.content, token.id
                ));
            }
            _ => {}
        }
    }
    let size = entries.keys().last().map_or(0, |&last| last as usize + 1);
    // An id far outside would make a list of gigabytes.
    if size > 2 * entries.len() + 1024 {
        return Err(format!("token id {} is far outside a vocabulary of {} tokens", size - 1, entries.len()));
    }
    let (mut tokens, mut kinds) = (vec![String::new(); size], vec![TokenKind::Unused; size]);
    for (id, (text, kind)) in entries {
        tokens[id as usize] = text;
        kinds[id as usize] = kind;
    }
    Ok((tokens, kinds))
}

/// Reads the normalizer and the pre-tokenizer: NFC or nothing, expressions and digits before a byte-level step.
fn pre_tokenizer(
    file: &TokenizerJson,
    unsupported: &impl Fn(String) -> TokenizerError,
) -> Result<PreTokenizer, TokenizerError> {
    let mut nfc = false;
    for step in steps(&file.normalizer, "normalizers") {
        match step["type"].as_str() {
            Some("NFC") => nfc = true,
            _ => return Err(unsupported(format!("normalizer {step} is not supported; only NFC is"))),
        }
    }
    let mut stages = Vec::new();
    let mut byte_level = false;
    for step in steps(&file.pre_tokenizer, "pretokenizers") {
        let flag = |name: &str, default: bool| step[name].as_bool().unwrap_or(default);
        match (step["type"].as_str(), step["pattern"]["Regex"].as_str()) {
            (Some("Split"), Some(expression)) if step["behavior"] == "Isolated" && !flag("invert", false) => {
                stages.push(expression);
            }
            (Some("Digits"), _) if flag("individual_digits", false) => stages.push(DIGIT),
            (Some("ByteLevel"), _) if !flag("add_prefix_space", true) => {
                byte_level = true;
                if flag("use_regex", true) {
                    stages.push(GPT2);
                }
            }
            _ => return Err(unsupported(format!("pre-tokenizer {step} is not supported"))),
        }
    }
    if !byte_level {
        let what = "the pre-tokenizer is not byte-level: only byte-level BPE is supported";
        return Err(unsupported(what.to_owned()));
    }
    // Mistral's files of 2025 were exported with Llama 3's expression over a Tekken vocabulary.
    if stages == [LLAMA_BPE] && file.added_tokens.iter().any(|token| token.content == "[INST]") {
        stages = vec![TEKKEN];
    }
    PreTokenizer::from_expressions(&stages, nfc)
}

/// The steps of a normalizer or pre-tokenizer, whether one or a sequence.
fn steps<'a>(step: &'a Option<Value>, list: &str) -> Vec<&'a Value> {
    match step {
        None => Vec::new(),
        Some(step) if step["type"] == "Sequence" => step[list].as_array().into_iter().flatten().collect(),
        Some(step) => vec![step],
    }
}

/// True if the post-processor's template for one text begins with BOS (newer files say it only there).
fn starts_with_bos(file: &TokenizerJson, bos: Option<u32>, tokens: &[String]) -> bool {
    let Some(bos) = bos.map(|id| tokens[id as usize].as_str()) else { return false };
    let first = |step: &Value| step["single"][0]["SpecialToken"]["id"] == bos;
    steps(&file.post_processor, "processors").into_iter().any(first)
}

/// The chat templates of a folder, by name, from where transformers takes them: from files of their own
/// (chat_template.jinja and additional_chat_templates/NAME.jinja) or else, all of them, from tokenizer_config.json. Where
/// neither has any, from the files of a processor: chat_template.json, processor_config.json.
fn chat_templates(
    folder: &Path,
    config: Option<ChatTemplate>,
) -> Result<BTreeMap<String, String>, TokenizerError> {
    let files = template_files(folder)?;
    if !files.is_empty() {
        return Ok(files);
    }
    let mut templates = config.map(ChatTemplate::by_name).unwrap_or_default();
    for name in ["chat_template.json", "processor_config.json"] {
        if templates.is_empty() {
            let config: ProcessorConfig = read_optional(&folder.join(name))?;
            templates = config.chat_template.map(ChatTemplate::by_name).unwrap_or_default();
        }
    }
    Ok(templates)
}

/// chat_template.jinja and additional_chat_templates/.
fn template_files(folder: &Path) -> Result<BTreeMap<String, String>, TokenizerError> {
    let mut templates = BTreeMap::new();
    let additional = folder.join("additional_chat_templates");
    let io = |source| TokenizerError::Io { path: additional.clone(), source };
    for entry in present(fs::read_dir(&additional).map_err(io))?.into_iter().flatten() {
        let path = entry.map_err(io)?.path();
        if let (Some("jinja"), Some(name)) = (
            path.extension().and_then(|extension| extension.to_str()),
            path.file_stem().and_then(|name| name.to_str()),
        ) {
            templates.insert(name.to_owned(), read(&path)?);
        }
    }
    if let Some(template) = present(read(&folder.join("chat_template.jinja")))? {
        templates.insert(DEFAULT_TEMPLATE.to_owned(), template);
    }
    Ok(templates)
}

impl ChatTemplate {
    fn by_name(self) -> BTreeMap<String, String> {
        match self {
            Self::One(template) => [(DEFAULT_TEMPLATE.to_owned(), template)].into(),
            Self::Named(named) => named.into_iter().map(|named| (named.name, named.template)).collect(),
        }
    }
}

impl MergeRule {
    fn split((index, rule): (usize, Self)) -> Result<MergePair<'static>, TokenizerError> {
        match rule {
            Self::Pair(left, right) => Ok((left.into(), right.into())),
            Self::Line(line) => {
                let (left, right) = split_merge(index, &line)?;
                Ok((left.into_owned().into(), right.into_owned().into()))
            }
        }
    }
}

impl TokenText {
    fn into_text(self) -> String {
        match self {
            Self::Text(text) | Self::Token { content: text } => text,
        }
    }
}

fn read(path: &Path) -> Result<String, TokenizerError> {
    text::read(path).map_err(|source| TokenizerError::Io { path: path.to_owned(), source })
}

fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, TokenizerError> {
    serde_json::from_str(text).map_err(|source| TokenizerError::Json { path: PathBuf::from(path), source })
}

/// The file's contents, or the default when there is no such file.
fn read_optional<T: DeserializeOwned + Default>(path: &Path) -> Result<T, TokenizerError> {
    present(read(path))?.map_or_else(|| Ok(T::default()), |text| parse(path, &text))
}

/// `None` for what is not there.
fn present<T>(result: Result<T, TokenizerError>) -> Result<Option<T>, TokenizerError> {
    match result {
        Err(TokenizerError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}
