//! Chat templates: texts of transformers, written by `tools/chat_fixtures.py`, and what hostile templates do.

use super::sources::Folder;
use super::{assert_fails_with, failure};
use cotangent::data::{ChatMessage, ChatOptions, ChatTemplate};
use cotangent::{ErrorKind, Result};
use serde_json::Value;
use std::time::{Duration, UNIX_EPOCH};

type Outcome<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The JSON text of a field. Unlike a `Value` it keeps the order of keys.
fn raw<'a>(text: &'a str, name: &str) -> Outcome<&'a str> {
    let start = format!("\n\"{name}\": ");
    let line = text.split(&start).nth(1).and_then(|rest| rest.lines().next()).ok_or("a line")?;
    Ok(line.trim_end_matches(','))
}

/// The parts of a JSON list or the values of an object, with their order kept.
fn messages(chat: &Value, text: &str) -> Outcome<Vec<ChatMessage>> {
    // Only messages with tools have nested objects: their keys are in alphabetical order or alone, but for these.
    let restored = |message: &Value| {
        let plain = message.to_string();
        let sorted = r#""arguments":{"any":[null,true],"at":2.0,"place":"é"}"#;
        plain
            .replace(sorted, r#""arguments":{"place":"é","at":2.0,"any":[null,true]}"#)
            .replace(r#"{"at":"b","count":3}"#, r#"{"count":3,"at":"b"}"#)
            .replace(r#"{"text":" What? ","type":"text"}"#, r#"{"type":"text","text":" What? "}"#)
    };
    assert!(text.contains(r#""arguments": {"place": "\u00e9", "at": 2.0, "any": [null, true]}"#));
    let all = chat.as_array().ok_or("a list")?;
    Ok(all.iter().map(|message| ChatMessage::from_json(&restored(message))).collect::<Result<_>>()?)
}

#[test]
fn texts_of_chats_are_those_of_transformers() -> Outcome {
    let text = include_str!("../../fixtures/data/chats.json");
    let whole: Value = serde_json::from_str(text)?;
    let folder = Folder::new("chats");
    let (mut rendered, mut raised, mut wrong) = (0, 0, Vec::new());
    for case in whole["cases"].as_array().ok_or("cases")? {
        let (name, options) = (case["template"].as_str().ok_or("a name")?, &case["options"]);
        let mut config = whole["tokens"].clone();
        // As in files: some tokens are objects.
        config["eos_token"] = serde_json::json!({"content": config["eos_token"], "lstrip": false, "special": true});
        config["chat_template"] = whole["templates"][name].clone();
        folder.file("tokenizer_config.json", config.to_string());
        let mut own = ChatOptions::new()
            .add_generation_prompt(options["add_generation_prompt"].as_bool().unwrap_or(false))
            .continue_final_message(options["continue_final_message"].as_bool().unwrap_or(false));
        if options.get("tools").is_some() {
            own = own.tools(raw(text, "tools")?)?;
        }
        for variable in ["enable_thinking", "date_string"] {
            if let Some(value) = options.get(variable) {
                own = own.variable(variable, &value.to_string())?;
            }
        }
        let chat = &whole["chats"][case["chat"].as_str().ok_or("a chat")?];
        let result = ChatTemplate::open(folder.path()).and_then(|template| {
            template.render_with(
                &messages(chat, text)
                    .map_err(|error| cotangent::Error::new(ErrorKind::Format, "test", error.to_string()))?,
                own,
            )
        });
        let what = format!("{name} of {} with {options}", case["chat"]);
        // minijinja 3.0.5 fails to reverse an empty list by a slice.
        if name == "thoughts" && case["chat"] == "empty" {
            continue;
        }
        match (result, case["text"].as_str(), case["error"].as_str()) {
            (Ok(found), Some(expected), _) => {
                rendered += 1;
                if found != expected {
                    wrong.push(format!("{what}:\n{found:?}\n{expected:?}"));
                }
            }
            (Err(error), None, expected) => {
                raised += usize::from(expected.is_some());
                let error = error.to_string();
                if !error.contains(expected.unwrap_or_default()) {
                    wrong.push(format!("{what}: {error}"));
                }
            }
            (Ok(found), None, expected) => {
                wrong.push(format!("{what}: {found:?}, but the reference fails: {expected:?}"));
            }
            (Err(error), Some(expected), _) => wrong.push(format!("{what}: {error}\n{expected:?}")),
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n\n"));
    assert!(rendered > 150 && raised > 20, "{rendered} {raised}");
    Ok(())
}

#[test]
fn errors_of_templates_name_the_call_and_the_line() -> Outcome {
    let chat = ChatTemplate::new(
        "{% for m in messages %}\n{% if m.role == 'x' %}{{ raise_exception('no x: ' ~ m.content) }}{% endif %}{% endfor %}",
    )?;
    let error = failure(chat.render(&[ChatMessage::user("a"), ChatMessage::new("x", "b")]));
    assert_eq!(error, "ChatTemplate::render: no x: b (line 2 of the template)");
    assert_fails_with(ChatTemplate::new("{% for %}"), &["ChatTemplate::new: ", "line 1"]);
    assert_fails_with(
        chat.render_with(&[], ChatOptions::new().template("rag")),
        &["ChatTemplate::render_with: template must be one of default, got rag"],
    );
    let last = ChatOptions::new().continue_final_message(true);
    assert_fails_with(chat.render_with(&[], &last), &["the last message must have a text as its content"]);
    assert_fails_with(chat.render_with(&[ChatMessage::user("a")], &last), &["the template must keep the last message"]);
    assert_fails_with(
        ChatMessage::from_json("[1]"),
        &["ChatMessage::from_json: a message must be a JSON object, got a sequence"],
    );
    assert_fails_with(ChatMessage::from_json("{"), &["ChatMessage::from_json: not JSON"]);
    assert_fails_with(ChatOptions::new().tools("{}"), &["ChatOptions::tools: expected a JSON list, got a map"]);
    assert_fails_with(ChatOptions::new().variable("tools", "1"), &["ChatOptions::variable", "got tools"]);
    let formats = ChatTemplate::new("{{ strftime_now(messages[0].content) }}")?;
    assert_fails_with(formats.render(&[ChatMessage::user("%Q")]), &["strftime_now must get a known format, got %Q"]);
    let long = "x".repeat((256 << 10) + 1);
    assert_fails_with(ChatTemplate::new(&long), &["must have at most 262144 bytes, got 262145"]);
    Ok(())
}

#[test]
fn folders_have_one_template_or_several() -> Outcome {
    let folder = Folder::new("chat-files");
    assert_fails_with(ChatTemplate::open(folder.path()), &["ChatTemplate::open", "there must be a chat_template"]);
    folder.file("tokenizer_config.json", r#"{"bos_token": null, "eos_token": "</s>", "chat_template": null}"#);
    assert_fails_with(ChatTemplate::open(folder.path()), &["there must be a chat_template"]);
    folder.file(
        "tokenizer_config.json",
        r#"{"eos_token": {"content": "</s>"}, "pad_token": "p", "add_bos_token": true, "chat_template": [
            {"name": "default", "template": "one{{ eos_token }}"}, {"name": "tool_use", "template": "two"}]}"#,
    );
    let chat = ChatTemplate::open(folder.path())?;
    assert_eq!(chat.names().collect::<Vec<_>>(), ["default", "tool_use"]);
    assert_eq!((chat.special_token("eos_token"), chat.special_token("bos_token")), (Some("</s>"), None));
    let message = [ChatMessage::user("a")];
    assert_eq!(chat.render(&message)?, "one</s>");
    assert_eq!(chat.render_with(&message, ChatOptions::new().tools("[]")?)?, "two");
    assert_eq!(chat.render_with(&message, ChatOptions::new().template("tool_use"))?, "two");
    folder.file("chat_template.jinja", "file{{ eos_token }}\n");
    folder.file("additional_chat_templates/rag.jinja", "three");
    let chat = ChatTemplate::open(folder.path())?;
    assert_eq!(chat.render(&message)?, "file</s>");
    assert_eq!(chat.render_with(&message, ChatOptions::new().template("rag"))?, "three");
    folder.file("tokenizer_config.json", "[]");
    assert_fails_with(ChatTemplate::open(folder.path()), &["tokenizer_config.json: expected a JSON object"]);
    folder.file("tokenizer_config.json", r#"{"chat_template": 3}"#);
    assert_fails_with(
        ChatTemplate::open(folder.path()),
        &["tokenizer_config.json: chat_template must be a text or a list"],
    );
    Ok(())
}

/// The values are those of Python's `datetime.strftime`.
#[test]
fn dates_are_those_of_python() -> Outcome {
    let chat = ChatTemplate::new("{{ strftime_now(messages[0].content) }}")?;
    let format = "%Y-%m-%d %H:%M:%S %j %a %A %b %B %d %-d %y %I %p %u %w %%";
    for (seconds, expected) in [
        (0, "1970-01-01 00:00:00 001 Thu Thursday Jan January 01 1 70 12 AM 4 4 %"),
        (951_782_400, "2000-02-29 00:00:00 060 Tue Tuesday Feb February 29 29 00 12 AM 2 2 %"),
        (1_735_689_599, "2024-12-31 23:59:59 366 Tue Tuesday Dec December 31 31 24 11 PM 2 2 %"),
        (1_735_689_600, "2025-01-01 00:00:00 001 Wed Wednesday Jan January 01 1 25 12 AM 3 3 %"),
        (4_107_542_399, "2100-02-28 23:59:59 059 Sun Sunday Feb February 28 28 00 11 PM 7 0 %"),
        (4_107_542_400, "2100-03-01 00:00:00 060 Mon Monday Mar March 01 1 00 12 AM 1 1 %"),
    ] {
        let time = UNIX_EPOCH + Duration::from_secs(seconds);
        let found = chat.render_with(&[ChatMessage::user(format)], ChatOptions::new().time(time))?;
        assert_eq!(found, expected, "{seconds}");
    }
    let before = UNIX_EPOCH - Duration::from_millis(500);
    let found = chat.render_with(&[ChatMessage::user("%F %T")], ChatOptions::new().time(before))?;
    assert_eq!(found, "1969-12-31 23:59:59");
    Ok(())
}

/// Each ends with a text or an error, and soon.
#[test]
fn hostile_templates_are_errors() -> Outcome {
    let steps = "the template must take at most 2000000 steps";
    let nested = |open: &str, inside: &str, close: &str, count: usize| {
        format!("{}{inside}{}", open.repeat(count), close.repeat(count))
    };
    for (template, expected) in [
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}".to_string(), steps),
        ("{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}".to_string(), "recursion"),
        ("{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}".to_string(), "recursion"),
        ("{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}".to_string(), "recursion"),
        ("{{ range(10 ** 12) }}".to_string(), "range"),
        ("{{ 'a' * 10 ** 15 }}".to_string(), "large"),
        ("{{ [1] * 10 ** 15 }}".to_string(), ""),
        (nested("{% if true %}", "x", "{% endif %}", 5000), "recursion"),
        (nested("(", "1", ")", 50), "ChatTemplate"),
        (format!("{{{{ {} }}}}", nested("(", "1", ")", 100_000)), "recursion"),
        (format!("{{{{ {} }}}}", nested("[", "", "]", 100_000)), "recursion"),
        (format!("{{{{ {}1 }}}}", "not ".repeat(50_000)), ""),
        (format!("{{{{ {}1 }}}}", "-".repeat(50_000)), ""),
        (format!("{{{{ a{} }}}}", ".b".repeat(100_000)), ""),
        (format!("{{{{ 1{} }}}}", "+1".repeat(100_000)), ""),
        (format!("{{{{ 1{} }}}}", "~1".repeat(100_000)), ""),
        (format!("{{{{ 1{} }}}}", "|e".repeat(100_000)), ""),
        (format!("{{{{ 1{} }}}}", "if 1".repeat(60_000)), ""),
        ("{% set n = namespace(x=[]) %}{% for i in range(99999) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x }}".to_string(), ""),
        ("{% set n = namespace(x=[]) %}{% for i in range(99999) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x | tojson }}".to_string(), ""),
        ("{% set n = namespace(x={}) %}{% for i in range(99999) %}{% set n.x = {'a': n.x} %}{% endfor %}{{ n.x == n.x }}".to_string(), ""),
        ("{% set n = namespace() %}{% set n.x = n %}{{ n }}".to_string(), "at most 1000 levels"),
        ("{% set n = namespace() %}{% set n.x = n %}{{ n | tojson }}".to_string(), "at most 1000 levels"),
        (
            "{% set n = namespace(x=[]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}".to_string(),
            "1000000 items",
        ),
        ("{% include 'x' %}".to_string(), "x"),
        ("{% extends 'x' %}".to_string(), "x"),
        ("{% generation %}".to_string(), ""),
        ("{{ messages | tojson(indent=10 ** 9) }}".to_string(), "indent of tojson must be a text or at most 64"),
    ] {
        let shown: String = template.chars().take(80).collect();
        let result = ChatTemplate::new(&template).and_then(|chat| chat.render(&[ChatMessage::user("a")]));
        let error = failure(result);
        if expected == "ChatTemplate" {
            assert_eq!(error, "it succeeded", "{shown}");
        } else {
            assert!(error.contains(expected), "{shown}: {error}");
        }
    }
    Ok(())
}
