//! Chat templates: the text that a language model expects for a conversation.

mod files;
mod jinja;
mod json;
mod time;

use crate::error::bail;
use crate::{Error, ErrorKind, Result};
use cotangent_macros::named;
use minijinja::Value;
use std::fmt;
use std::path::Path;
use std::time::SystemTime;

/// A message of a conversation: a role and a text, or any fields that a template reads.
///
/// ```
/// use cotangent::data::ChatMessage;
/// let message = ChatMessage::user("What is 2 + 2?");
/// assert_eq!((message.role(), message.content()), (Some("user"), Some("What is 2 + 2?")));
/// let call = r#"{"role": "assistant", "tool_calls": [{"function": {"name": "add", "arguments": {"a": 2, "b": 2}}}]}"#;
/// assert_eq!(ChatMessage::from_json(call)?.role(), Some("assistant"));
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, PartialEq)]
pub struct ChatMessage {
    fields: Vec<(String, Value)>,
}

impl ChatMessage {
    /// A message with the fields `role` and `content`.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> ChatMessage {
        let fields = [("role", role.into()), ("content", content.into())];
        ChatMessage { fields: fields.map(|(name, text)| (name.to_string(), Value::from(text))).into() }
    }

    /// A message of the role `system`.
    pub fn system(content: impl Into<String>) -> ChatMessage {
        ChatMessage::new("system", content)
    }

    /// A message of the role `user`.
    pub fn user(content: impl Into<String>) -> ChatMessage {
        ChatMessage::new("user", content)
    }

    /// A message of the role `assistant`.
    pub fn assistant(content: impl Into<String>) -> ChatMessage {
        ChatMessage::new("assistant", content)
    }

    /// A message with the fields of a JSON object, for example with tool calls, or with several parts as its content.
    ///
    /// # Errors
    /// If the text is not a JSON object.
    #[named("ChatMessage::from_json")]
    pub fn from_json(text: &str) -> Result<ChatMessage> {
        let object = json::parse("ChatMessage::from_json", text)?;
        match json::entries(&object) {
            Some(fields) => Ok(ChatMessage { fields }),
            None => bail!(Format, "ChatMessage::from_json", "a message must be a JSON object, got a {}", object.kind()),
        }
    }

    /// The role.
    pub fn role(&self) -> Option<&str> {
        self.text("role")
    }

    /// The content, if it is a text.
    pub fn content(&self) -> Option<&str> {
        self.text("content")
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(own, _)| own == name).and_then(|(_, value)| value.as_str())
    }

    fn value(&self) -> Value {
        Value::from_pairs(self.fields.iter().cloned())
    }
}

impl fmt::Debug for ChatMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChatMessage({})", self.value())
    }
}

/// The options of [`ChatTemplate::render_with`].
///
/// ```
/// use cotangent::data::{ChatMessage, ChatOptions, ChatTemplate};
/// let chat = ChatTemplate::new("{% if tools %}{{ tools | tojson }}{% endif %}{{ messages[0].content }} {{ mood }}")?;
/// let options = ChatOptions::new().tools(r#"[{"name": "add"}]"#)?.variable("mood", r#""calm""#)?;
/// assert_eq!(chat.render_with(&[ChatMessage::user("Hi")], options)?, r#"[{"name": "add"}]Hi calm"#);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ChatOptions {
    add_generation_prompt: bool,
    continue_final_message: bool,
    template: Option<String>,
    tools: Option<Value>,
    documents: Option<Value>,
    variables: Vec<(String, Value)>,
    time: Option<SystemTime>,
}

impl Default for ChatOptions {
    fn default() -> ChatOptions {
        ChatOptions {
            add_generation_prompt: true,
            continue_final_message: false,
            template: None,
            tools: None,
            documents: None,
            variables: Vec::new(),
            time: None,
        }
    }
}

impl From<&ChatOptions> for ChatOptions {
    fn from(options: &ChatOptions) -> ChatOptions {
        options.clone()
    }
}

/// The variables of a template that options cannot set.
const OWN: [&str; 4] = ["messages", "tools", "documents", "add_generation_prompt"];

impl ChatOptions {
    /// All options at their defaults.
    pub fn new() -> ChatOptions {
        ChatOptions::default()
    }

    /// Whether the text ends with the start of an answer, so that a model continues with the answer. Unlike in Hugging Face's
    /// library it does by default.
    pub fn add_generation_prompt(mut self, adds: bool) -> ChatOptions {
        self.add_generation_prompt = adds;
        self
    }

    /// Whether the text ends within the last message, so that a model continues this message. There is no generation prompt then.
    pub fn continue_final_message(mut self, continues: bool) -> ChatOptions {
        self.continue_final_message = continues;
        self
    }

    /// The name of the template, if there are several. By default it is `tool_use` if there are tools and such a template, and
    /// `default` otherwise.
    pub fn template(mut self, name: impl Into<String>) -> ChatOptions {
        self.template = Some(name.into());
        self
    }

    /// The tools that the model may call: a JSON list of function descriptions.
    ///
    /// # Errors
    /// If the text is not a JSON list.
    pub fn tools(mut self, list: &str) -> Result<ChatOptions> {
        self.tools = Some(json::parse_list("ChatOptions::tools", list)?);
        Ok(self)
    }

    /// The documents that the answer refers to: a JSON list of objects.
    ///
    /// # Errors
    /// If the text is not a JSON list.
    pub fn documents(mut self, list: &str) -> Result<ChatOptions> {
        self.documents = Some(json::parse_list("ChatOptions::documents", list)?);
        Ok(self)
    }

    /// Another variable of the template, as a JSON value: `variable("enable_thinking", "false")`.
    ///
    /// # Errors
    /// If the value is not JSON, or the variable has an option of its own.
    pub fn variable(mut self, name: impl Into<String>, value: &str) -> Result<ChatOptions> {
        let name = name.into();
        if OWN.contains(&name.as_str()) {
            bail!(Value, "ChatOptions::variable", "name must not be that of an argument or another option, got {name}");
        }
        self.variables.push((name, json::parse("ChatOptions::variable", value)?));
        Ok(self)
    }

    /// The time that `strftime_now` formats. By default it is the time of the call. It is formatted in UTC.
    pub fn time(mut self, time: SystemTime) -> ChatOptions {
        self.time = Some(time);
        self
    }
}

/// The chat template of a model: a Jinja template, which turns a conversation into the text that the model was trained on.
///
/// The text contains special tokens such as the one for the start, so encode it by
/// [`Tokenizer::encode`](super::Tokenizer::encode), which adds none.
///
/// Templates have the extensions of Hugging Face's library: `tojson`, `raise_exception`, `strftime_now`, `break` and `continue`,
/// and the methods of Python's strings, lists and dictionaries. The steps and the recursion of a template are limited, but not what
/// it joins by `~` and `+`: a malicious template can use up the memory, or end the process by joining a namespace that contains
/// itself.
///
/// ```
/// use cotangent::data::{ChatMessage, ChatTemplate};
/// let template = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</s>{% endfor %}\
///                 {% if add_generation_prompt %}<assistant>{% endif %}";
/// let chat = ChatTemplate::new(template)?;
/// let text = chat.render(&[ChatMessage::system("Be brief."), ChatMessage::user("Hello! ")])?;
/// assert_eq!(text, "<system>Be brief.</s><user>Hello!</s><assistant>");
/// # Ok::<(), cotangent::Error>(())
/// ```
#[doc(alias = "apply_chat_template")]
#[derive(Clone)]
pub struct ChatTemplate {
    /// The names and sources.
    templates: Vec<(String, String)>,
    /// Such as `bos_token`.
    tokens: Vec<(String, Value)>,
}

const DEFAULT: &str = "default";

impl ChatTemplate {
    /// A template without special tokens.
    ///
    /// # Errors
    /// If it is not a Jinja template, or has more than 256 KiB.
    #[named("ChatTemplate::new")]
    pub fn new(template: &str) -> Result<ChatTemplate> {
        ChatTemplate::made("ChatTemplate::new", vec![(DEFAULT.to_string(), template.to_string())], Vec::new())
    }

    /// Reads the template of a model's folder: from `chat_template.jinja`, or else from `tokenizer_config.json`, which also names
    /// the special tokens. Other templates are in the folder `additional_chat_templates`.
    ///
    /// ```no_run
    /// use cotangent::data::{ChatMessage, ChatTemplate, Tokenizer};
    /// let (chat, tokenizer) = (ChatTemplate::open("folder")?, Tokenizer::open("folder/tokenizer.json")?);
    /// let text = chat.render(&[ChatMessage::user("What is 2 + 2?")])?;
    /// let tokens = tokenizer.encode(&text)?.unsqueeze(0)?;
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a file cannot be read, or there is no template.
    #[named("ChatTemplate::open")]
    pub fn open(folder: impl AsRef<Path>) -> Result<ChatTemplate> {
        let (templates, tokens) = files::read("ChatTemplate::open", folder.as_ref())?;
        ChatTemplate::made("ChatTemplate::open", templates, tokens)
    }

    fn made(op: &'static str, templates: Vec<(String, String)>, tokens: Vec<(String, Value)>) -> Result<ChatTemplate> {
        for (_, source) in &templates {
            jinja::check(source).map_err(|what| Error::made(ErrorKind::Format, op.into(), what))?;
        }
        Ok(ChatTemplate { templates, tokens })
    }

    /// The names of the templates. A single one is called `default`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.templates.iter().map(|(name, _)| name.as_str())
    }

    /// A special token, such as `eos_token`.
    pub fn special_token(&self, name: &str) -> Option<&str> {
        self.tokens.iter().find(|(own, _)| own == name).and_then(|(_, token)| token.as_str())
    }

    /// The text of a conversation, and of the start of an answer.
    ///
    /// # Errors
    /// If the template raises an error, for example because of the order of roles, or takes too many steps.
    #[named("ChatTemplate::render")]
    pub fn render(&self, messages: &[ChatMessage]) -> Result<String> {
        self.rendered(messages, &ChatOptions::new())
    }

    /// As [`render`](Self::render), with options.
    ///
    /// # Errors
    /// As there; also if there is no template of this name, or the last message cannot be continued.
    #[named("ChatTemplate::render_with")]
    pub fn render_with(&self, messages: &[ChatMessage], options: impl Into<ChatOptions>) -> Result<String> {
        self.rendered(messages, &options.into())
    }

    fn rendered(&self, messages: &[ChatMessage], options: &ChatOptions) -> Result<String> {
        const OP: &str = "ChatTemplate::render";
        let find = |name: &str| self.templates.iter().find(|(own, _)| own == name).map(|(_, source)| source);
        let source = match &options.template {
            Some(name) => find(name),
            None => options.tools.as_ref().and_then(|_| find("tool_use")).or_else(|| find(DEFAULT)),
        };
        let Some(source) = source else {
            let (name, known) = (options.template.as_deref().unwrap_or(DEFAULT), self.names().collect::<Vec<_>>());
            bail!(Value, OP, "template must be one of {}, got {name}", known.join(", "));
        };
        let mut messages = messages.to_vec();
        let last = if options.continue_final_message { Some(mark_end(&mut messages)?) } else { None };
        let mut variables = vec![
            ("messages".to_string(), Value::from(messages.iter().map(ChatMessage::value).collect::<Vec<_>>())),
            ("tools".to_string(), Value::from(options.tools.clone())),
            ("documents".to_string(), Value::from(options.documents.clone())),
            ("add_generation_prompt".to_string(), Value::from(options.add_generation_prompt && last.is_none())),
        ];
        variables.extend(self.tokens.iter().cloned());
        // Later ones count.
        variables.extend(options.variables.iter().cloned());
        let time = options.time.unwrap_or_else(SystemTime::now);
        let text =
            jinja::render(source, variables, time).map_err(|what| Error::made(ErrorKind::Value, OP.into(), what))?;
        last.map_or(Ok(text.clone()), |last| cut(text, &last))
    }
}

/// What stands for the end of a message that is continued.
const END: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// Adds a mark to the last message, and returns its text.
fn mark_end(messages: &mut [ChatMessage]) -> Result<String> {
    const OP: &str = "ChatTemplate::render";
    let content = messages.last_mut().and_then(|last| last.fields.iter_mut().find(|(name, _)| name == "content"));
    let Some((text, value)) = content.and_then(|(_, value)| Some((value.as_str()?.to_string(), value))) else {
        bail!(Value, OP, "the last message must have a text as its content to be continued");
    };
    *value = Value::from(format!("{text}{END}"));
    Ok(text)
}

/// The text before the mark. Spaces at the end that the template has removed stay removed.
fn cut(mut text: String, last: &str) -> Result<String> {
    let at = text.rfind(END.trim_end()).filter(|_| text.contains(last.trim()));
    let Some(at) = at else {
        bail!(Value, "ChatTemplate::render", "the template must keep the last message for it to be continued");
    };
    let keeps_spaces = text[at..].starts_with(END);
    text.truncate(at);
    if !keeps_spaces {
        text.truncate(text.trim_end().len());
    }
    Ok(text)
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChatTemplate({})", self.names().collect::<Vec<_>>().join(", "))
    }
}
