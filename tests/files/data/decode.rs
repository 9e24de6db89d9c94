//! Text of tokens that come one by one.

use super::assert_fails_with;
use super::sources::Folder;
use crate::dice::Dice;
use cotangent::data::Tokenizer;
use cotangent::{Result, Tensor};
use serde_json::{Value, json};

type Outcome<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

fn open(folder: &Folder, name: &str, model: &Value, decoder: &Value, special: &[(u32, &str)]) -> Result<Tokenizer> {
    let added: Vec<Value> = special
        .iter()
        .map(|(id, content)| {
            json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                   "normalized": false, "special": true})
        })
        .collect();
    let whole = json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": null, "post_processor": null, "decoder": decoder, "model": model});
    Tokenizer::open(folder.file(name, whole.to_string()))
}

fn vocabulary(words: &[String]) -> Value {
    words.iter().enumerate().map(|(at, word)| (word.clone(), json!(at))).collect::<serde_json::Map<_, _>>().into()
}

/// Tokenizers with the decoders of the well-known families. Each has a special token.
fn tokenizers(folder: &Folder) -> Outcome<Vec<(&'static str, Tokenizer)>> {
    let bytes = Tokenizer::open(folder.file("bytes.json", include_str!("../../fixtures/data/tokenizer.json")))?;
    // As in Llama 1 and 2, and Gemma.
    let mut words: Vec<String> = ["<s>", "▁a", "▁", "bc", "é", "▁▁", "☃", ".", "\u{FFFD}"].map(String::from).to_vec();
    words.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
    let bpe = json!({"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
        "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "vocab": vocabulary(&words), "merges": []});
    let decoder = json!({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]});
    let fallback = open(folder, "fallback.json", &bpe, &decoder, &[(0, "<s>")])?;
    let decoder = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true});
    let metaspace = open(folder, "metaspace.json", &bpe, &decoder, &[(0, "<s>")])?;
    // As in BERT.
    let words = ["[UNK]", "[SEP]", "a", "##b", "don", "'", "t", ".", ",", "é", "##☃"].map(String::from);
    let model = json!({"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100, "vocab": vocabulary(&words)});
    let decoder = json!({"type": "WordPiece", "prefix": "##", "cleanup": true});
    let pieces = open(folder, "pieces.json", &model, &decoder, &[(1, "[SEP]")])?;
    // As in GPT 1.
    let words = ["<pad>", "a", "b</w>", "é</w>", ".</w>", "c"].map(String::from);
    let model = json!({"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
        "end_of_word_suffix": "</w>", "fuse_unk": false, "byte_fallback": false, "vocab": vocabulary(&words), "merges": []});
    let suffix =
        open(folder, "suffix.json", &model, &json!({"type": "BPEDecoder", "suffix": "</w>"}), &[(0, "<pad>")])?;
    Ok(vec![("bytes", bytes), ("fallback", fallback), ("metaspace", metaspace), ("pieces", pieces), ("suffix", suffix)])
}

/// All pieces, and the text of all tokens.
fn pieces(tokenizer: &Tokenizer, ids: &[i64]) -> Result<(Vec<String>, String)> {
    let mut stream = tokenizer.decode_stream();
    let mut pieces = ids.iter().map(|&id| stream.push(id)).collect::<Result<Vec<_>>>()?;
    pieces.push(stream.finish()?);
    Ok((pieces, tokenizer.decode(&Tensor::from_vec(ids.to_vec(), [ids.len()])?)?))
}

#[test]
fn pieces_of_any_tokens_are_the_text_of_all() -> Outcome {
    let folder = Folder::new("decode");
    for (name, tokenizer) in tokenizers(&folder)? {
        let mut returned_early = 0;
        for round in 0..2000 {
            let mut dice = Dice::new(11, round, 0);
            let size = tokenizer.vocab_size();
            // Few tokens repeat more often, and bytes make whole characters now and then.
            let few = if dice.percent(50) { size } else { size.min(12) };
            let mut ids = Vec::new();
            for _ in 0..dice.below(24) {
                if dice.percent(20) {
                    ids.extend(tokenizer.encode(dice.choose(&["é", "☃", "👍🏽", " a", "日本"]))?.to_vec::<i64>()?);
                } else {
                    ids.push(dice.below(few) as i64);
                }
            }
            let (pieces, whole) = pieces(&tokenizer, &ids)?;
            assert_eq!(pieces.concat(), whole, "{name}: {ids:?} in {pieces:?}");
            let (_, before) = pieces.split_last().ok_or("pieces")?;
            returned_early += usize::from(before.iter().any(|piece| !piece.is_empty()));
        }
        assert!(returned_early > 700, "{name}: {returned_early}");
    }
    Ok(())
}

#[test]
fn a_character_comes_when_it_is_complete() -> Outcome {
    let folder = Folder::new("decode-character");
    for (name, tokenizer) in tokenizers(&folder)?.into_iter().take(2) {
        let byte = |byte: u8| tokenizer.token_id(&format!("<0x{byte:02X}>"));
        let ids: Vec<i64> = match name {
            // No token has more than one byte of it.
            "bytes" => tokenizer.encode("a𐍈b")?.to_vec()?,
            _ => [Some(3)].into_iter().chain("𐍈".bytes().map(byte)).chain([Some(3)]).flatten().collect(),
        };
        assert_eq!(ids.len(), 6, "{name}");
        let mut stream = tokenizer.decode_stream();
        let found = ids.iter().map(|&id| stream.push(id)).collect::<Result<Vec<_>>>()?;
        match name {
            "bytes" => assert_eq!(found, ["a", "", "", "", "𐍈", "b"]),
            // Whether bytes are a text is known after the last of them.
            _ => assert_eq!(found, ["bc", "", "", "", "", "𐍈bc"]),
        }
        assert_eq!(stream.finish()?, "");
        // Without the last byte.
        let mut stream = tokenizer.decode_stream();
        ids[..4].iter().try_for_each(|&id| stream.push(id).map(drop))?;
        assert_eq!(stream.finish()?, if name == "bytes" { "\u{FFFD}" } else { "\u{FFFD}\u{FFFD}\u{FFFD}" });
    }
    Ok(())
}

/// What a stop string leaves of a text, character by character: the string that is complete first counts.
fn expected(text: &str, stops: &[&str]) -> (String, Option<String>) {
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
    for end in ends {
        let found = stops.iter().filter(|stop| text[..end].ends_with(**stop)).max_by_key(|stop| stop.len());
        if let Some(stop) = found {
            return (text[..end - stop.len()].to_string(), Some((*stop).to_string()));
        }
    }
    (text.to_string(), None)
}

#[test]
fn stop_strings_end_a_text_wherever_tokens_are_split() -> Outcome {
    let folder = Folder::new("decode-stop");
    let path = folder.file("tokenizer.json", include_str!("../../fixtures/data/tokenizer.json"));
    let tokenizer = Tokenizer::open(path)?;
    let all = ["aab", "ab", "b☃", "☃a", "aaaa", "\n\n", "☃☃b", "a\n"];
    let (mut stopped, mut ran) = (0, 0);
    for round in 0..3000 {
        let mut dice = Dice::new(5, round, 1);
        let text: String = (0..dice.below(14)).map(|_| dice.choose(&['a', 'b', '☃', '\n', 'a'])).collect();
        let stops: Vec<&str> = (0..dice.below(4)).map(|_| dice.choose(&all)).collect();
        // Single bytes and whole words.
        let ids: Vec<i64> = if dice.percent(50) {
            tokenizer.encode(&text)?.to_vec()?
        } else {
            let parts = text.chars().map(|c| tokenizer.encode(&c.to_string())?.to_vec::<i64>());
            parts.collect::<Result<Vec<_>>>()?.concat()
        };
        let mut stream = tokenizer.decode_stream().stop(stops.clone())?;
        let mut found = String::new();
        let mut end = None;
        for &id in &ids {
            found.push_str(&stream.push(id)?);
            end = end.or(stream.stopped_by().map(str::to_string));
            // Nothing that is returned is taken back.
            assert!(expected(&text, &stops).0.starts_with(&found), "{text:?} {stops:?} {found:?}");
        }
        found.push_str(&stream.finish()?);
        assert_eq!((found, end.clone()), expected(&text, &stops), "{text:?} {stops:?}");
        stopped += usize::from(end.is_some());
        ran += usize::from(end.is_none() && !stops.is_empty());
    }
    assert!(stopped > 300 && ran > 300, "{stopped} {ran}");
    assert_fails_with(
        tokenizer.decode_stream().stop(["a", ""]),
        &["DecodeStream::stop: stop strings must have at least one character, got an empty one"],
    );
    let mut stream = tokenizer.decode_stream();
    assert_fails_with(stream.push(1 << 40), &["DecodeStream::push: 1099511627776 is not a token id"]);
    let token = tokenizer.token_id("a").ok_or("a token")?;
    assert_eq!(stream.push(token)?, "a");
    Ok(())
}
