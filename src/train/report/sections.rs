//! The sections of the page.

use super::examples::data_address;
use super::{Confusion, Graph, Norms, Phases, Report, curves, escape};
use crate::json::object;
use crate::order::sort_by_key;
use crate::profile::bytes;
use serde_json::Value;
use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The most classes of a drawn matrix; beyond it is a list of the most frequent mistakes.
const MOST_CLASSES: usize = 40;
const MOST_MISTAKES: usize = 40;

pub(super) fn page(report: &Report) -> String {
    let (mut body, mut data) = (String::new(), object! {});
    facts(&mut body, &report.facts);
    if !report.series.is_empty() {
        data["charts"] = curves::charts(&report.series).into();
        curves_section(&mut body, report);
    }
    if let Some(confusion) = &report.confusion {
        data["cells"] = confusion_section(&mut body, confusion);
    }
    if !report.norms.is_empty() {
        data["sparks"] = norms_section(&mut body, &report.norms);
    }
    report.phases.iter().for_each(|phases| phases_section(&mut body, phases));
    report.model.iter().for_each(|(rows, totals)| model_section(&mut body, rows, totals));
    report.graph.iter().for_each(|graph| graph_section(&mut body, graph));
    if body.is_empty() {
        body.push_str("<p>Nothing was logged.</p>");
    }
    // `</` would end a script, also inside a string.
    let data = data.to_string().replace('<', "\\u003c");
    let (title, written) = (escape(&report.title), date(SystemTime::now()));
    // The policy forbids the page to load anything.
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'; img-src data:\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <header><div><h1>{title}</h1><p class=\"dim\">written {written}</p></div>\
         <button id=\"theme\" type=\"button\" aria-label=\"light or dark\" title=\"light or dark\">◐</button></header>\n\
         <main>\n{body}</main>\n<div id=\"tip\" role=\"status\" hidden></div>\n\
         <script type=\"application/json\" id=\"data\">{data}</script>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n"
    )
}

fn facts(body: &mut String, facts: &[(String, String)]) {
    if facts.is_empty() {
        return;
    }
    body.push_str("<dl class=\"facts\">");
    for (name, value) in facts {
        let _ = write!(body, "<div><dt>{}</dt><dd>{}</dd></div>", escape(name), escape(value));
    }
    body.push_str("</dl>\n");
}

fn curves_section(body: &mut String, report: &Report) {
    body.push_str(
        "<section id=\"curves\"><h2>Curves</h2>\
         <div class=\"controls\"><label>smoothing <input id=\"smooth\" type=\"range\" min=\"0\" max=\"0.99\" step=\"0.01\" value=\"0\"></label>\
         <label><input id=\"log\" type=\"checkbox\"> logarithmic</label></div>\
         <div id=\"charts\" class=\"charts\"></div>",
    );
    if report.series.iter().any(curves::Series::is_thinned) {
        body.push_str(
            "<p class=\"dim\">Of long curves the lowest and the highest point of each stretch are drawn.</p>",
        );
    }
    body.push_str(
        "<noscript><p>The curves are drawn by a script, which is turned off here.</p></noscript></section>\n",
    );
}

/// The text and images of a selected cell.
fn cell(confusion: &Confusion, target: usize, predicted: usize) -> Value {
    let count = confusion.matrix.count(target, predicted);
    let all: u64 = (0..confusion.matrix.classes()).map(|k| confusion.matrix.count(target, k)).sum();
    let share = 100.0 * count as f64 / all.max(1) as f64;
    let (actual, taken_for) = (&confusion.labels[target], &confusion.labels[predicted]);
    let text = if target == predicted {
        format!("{actual}: {count} of {all} were right ({share:.1} %)")
    } else {
        format!("{actual} taken for {taken_for}: {count} of {all} ({share:.1} %)")
    };
    let images: Vec<String> = confusion
        .examples
        .iter()
        .flat_map(|examples| examples.of(target, predicted))
        .map(|png| data_address(png))
        .collect();
    object! {"text": text, "images": images}
}

fn confusion_section(body: &mut String, confusion: &Confusion) -> Value {
    let (matrix, labels, classes) = (&confusion.matrix, &confusion.labels, confusion.matrix.classes());
    body.push_str("<section id=\"confusion\"><h2>Confusion matrix</h2>");
    let mut cells = serde_json::Map::new();
    if classes <= MOST_CLASSES {
        body.push_str(
            "<p class=\"dim\">Rows are targets, columns predictions. Point at a cell, or tap it, for examples.</p>",
        );
        body.push_str("<div class=\"scroll\"><table class=\"matrix\"><thead><tr><td></td>");
        labels.iter().for_each(|label| body.push_str(&format!("<th scope=\"col\">{}</th>", escape(label))));
        body.push_str("<th scope=\"col\" class=\"recall\">recall</th></tr></thead><tbody>");
        for (row, recall) in matrix.recall().into_iter().enumerate() {
            let all: u64 = (0..classes).map(|k| matrix.count(row, k)).sum();
            let _ = write!(body, "<tr><th scope=\"row\">{}</th>", escape(&labels[row]));
            for column in 0..classes {
                let count = matrix.count(row, column);
                let share = count as f64 / all.max(1) as f64;
                let kind = if row == column { "right" } else { "wrong" };
                if count == 0 {
                    body.push_str("<td class=\"none\">·</td>");
                    continue;
                }
                // Makes a single mistake visible.
                let shade = if row == column { share } else { 0.25 + 0.75 * (share * 4.0).min(1.0) };
                cells.insert(format!("{row},{column}"), cell(confusion, row, column));
                let _ = write!(
                    body,
                    "<td class=\"{kind}\" style=\"--v:{shade:.3}\"><button type=\"button\" data-cell=\"{row},{column}\">{count}</button></td>"
                );
            }
            let _ = write!(body, "<td class=\"recall\">{:.1} %</td></tr>", 100.0 * recall);
        }
        body.push_str("</tbody></table></div>");
    } else {
        mistakes_table(body, &mut cells, confusion);
    }
    body.push_str("<div id=\"cell\" class=\"cell\" aria-live=\"polite\"></div></section>\n");
    cells.into()
}

/// The most frequent mistakes, if there are too many classes for a matrix.
fn mistakes_table(body: &mut String, cells: &mut serde_json::Map<String, Value>, confusion: &Confusion) {
    let classes = confusion.matrix.classes();
    let off = (0..classes).flat_map(|row| (0..classes).filter(move |&column| column != row).map(move |k| (row, k)));
    let mut mistakes: Vec<(u64, usize, usize)> =
        off.map(|(row, column)| (confusion.matrix.count(row, column), row, column)).filter(|m| m.0 > 0).collect();
    sort_by_key(&mut mistakes, |&(count, row, column)| (std::cmp::Reverse(count), row, column));
    let shown = mistakes.len().min(MOST_MISTAKES);
    let _ = write!(
        body,
        "<p class=\"dim\">The {shown} most frequent of {} kinds of mistakes among {classes} classes.</p><div class=\"scroll\"><table>\
         <thead><tr><th>target</th><th>prediction</th><th class=\"number\">times</th></tr></thead><tbody>",
        mistakes.len()
    );
    for &(count, row, column) in &mistakes[..shown] {
        cells.insert(format!("{row},{column}"), cell(confusion, row, column));
        let (target, predicted) = (escape(&confusion.labels[row]), escape(&confusion.labels[column]));
        let _ = write!(
            body,
            "<tr><td>{target}</td><td>{predicted}</td><td class=\"number\"><button type=\"button\" \
             data-cell=\"{row},{column}\">{count}</button></td></tr>"
        );
    }
    body.push_str("</tbody></table></div>");
}

fn norms_section(body: &mut String, norms: &[Norms]) -> Value {
    body.push_str(
        "<section id=\"norms\"><h2>Norms</h2><div class=\"scroll\"><table class=\"norms\"><thead><tr><th>parameter</th>\
         <th class=\"wide\">shape</th><th colspan=\"2\">weight</th><th colspan=\"2\">gradient</th>\
         <th class=\"number wide\">ratio</th></tr></thead><tbody>",
    );
    let mut sparks = Vec::new();
    for row in norms {
        let _ =
            write!(body, "<tr><th scope=\"row\">{}</th><td class=\"wide dim\">{:?}</td>", escape(&row.name), row.shape);
        for series in [&row.weight, &row.grad] {
            let last = series.last().map_or_else(|| "–".into(), figure);
            let _ = write!(body, "<td class=\"number\">{last}</td><td>");
            if series.len() > 1 {
                let _ = write!(body, "<span class=\"spark\" data-spark=\"{}\"></span>", sparks.len());
                sparks.push(series.data(&series.name, 200));
            }
            body.push_str("</td>");
        }
        let ratio = row.grad.last().zip(row.weight.last()).map(|(grad, weight)| figure(grad / weight));
        let _ = write!(body, "<td class=\"number wide\">{}</td></tr>", ratio.unwrap_or_else(|| "–".into()));
    }
    body.push_str("</tbody></table></div></section>\n");
    sparks.into()
}

fn phases_section(body: &mut String, phases: &Phases) {
    let whole: Duration = phases.all().iter().map(|phase| phase.time).sum();
    body.push_str(
        "<section id=\"phases\"><h2>Time and memory</h2><div class=\"scroll\"><table><thead><tr><th>phase</th><th class=\"share\">share</th>\
         <th class=\"number\">time</th><th class=\"number wide\">calls</th><th class=\"number wide\">each</th>\
         <th class=\"number\">peak</th></tr></thead><tbody>",
    );
    for phase in phases.all() {
        let share = 100.0 * phase.time.as_secs_f64() / whole.as_secs_f64().max(1e-12);
        let each = phase.time.div_f64(phase.calls.max(1) as f64);
        let _ = write!(
            body,
            "<tr><th scope=\"row\">{}</th><td class=\"share\"><span class=\"bar\" style=\"--v:{share:.1}%\" title=\"{share:.1} %\"></span></td>\
             <td class=\"number\">{}</td><td class=\"number wide\">{}</td><td class=\"number wide\">{}</td><td class=\"number\">{}</td></tr>",
            escape(&phase.name),
            time(phase.time),
            phase.calls,
            time(each),
            bytes(phase.peak as i64),
        );
    }
    body.push_str("</tbody></table></div></section>\n");
}

fn model_section(body: &mut String, rows: &[[String; 4]], totals: &str) {
    let open = if rows.len() <= 60 { " open" } else { "" };
    let _ = write!(
        body,
        "<section id=\"model\"><h2>Model</h2><p>{}</p><details{open}><summary>{} rows</summary><div class=\"scroll\"><table>\
         <thead><tr><th>name</th><th>kind</th><th>shape</th><th class=\"number\">parameters</th></tr></thead><tbody>",
        escape(totals),
        rows.len()
    );
    for [name, kind, shape, count] in rows {
        let depth = name.matches('.').count() + usize::from(!name.is_empty());
        let _ = write!(
            body,
            "<tr><td style=\"--d:{depth}\" class=\"name\">{}</td><td class=\"dim\">{}</td><td>{}</td><td class=\"number\">{}</td></tr>",
            escape(name),
            escape(kind),
            escape(shape),
            escape(count)
        );
    }
    body.push_str("</tbody></table></div></details></section>\n");
}

fn graph_section(body: &mut String, graph: &Graph) {
    let Graph { svg, nodes, drawn } = graph;
    let part = if drawn < nodes { format!(" The {drawn} next to the result are drawn.") } else { String::new() };
    let _ = writeln!(
        body,
        "<section id=\"graph\"><h2>Graph</h2><p class=\"dim\">{nodes} operations and leaves.{part}</p>\
         <div class=\"scroll graph-box\">{svg}</div></section>"
    );
}

/// A number with four digits.
fn figure(value: f64) -> String {
    match value.abs() {
        _ if !value.is_finite() => value.to_string(),
        0.0 => "0".into(),
        size if (1e-3..1e5).contains(&size) => {
            let digits = (3 - size.log10().floor() as i32).clamp(0, 6) as usize;
            format!("{value:.digits$}")
        }
        _ => format!("{value:.2e}"),
    }
}

fn time(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds >= 1.0 => format!("{seconds:.2} s"),
        seconds if seconds >= 1e-3 => format!("{:.2} ms", seconds * 1e3),
        seconds => format!("{:.1} µs", seconds * 1e6),
    }
}

/// A time as `2026-11-16 17:05 UTC`.
fn date(at: SystemTime) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (mut days, minutes) = (seconds / 86_400, seconds % 86_400 / 60);
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut year, mut month) = (1970, 0);
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    format!("{year}-{:02}-{:02} {:02}:{:02} UTC", month + 1, days + 1, minutes / 60, minutes % 60)
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let text = |seconds| date(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(text(0), "1970-01-01 00:00 UTC");
        assert_eq!(text(951_782_399), "2000-02-28 23:59 UTC");
        assert_eq!(text(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(text(1_798_761_600), "2027-01-01 00:00 UTC");
    }

    #[test]
    fn figures_have_four_digits() {
        let texts = [0.0, 12.345_67, 0.001_234_5, 123_456.0, 1e-9, 99_999.9, f64::NAN].map(figure);
        assert_eq!(texts, ["0", "12.35", "0.001234", "1.23e5", "1.00e-9", "100000", "NaN"]);
    }
}
