//! Curves, and their grouping into charts.

use crate::json::object;
use crate::order::sort_few_by_key;
use serde_json::Value;

/// The most points of a curve on the page.
const MOST: usize = 2000;

/// A curve: numbers by step.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub name: String,
    points: Vec<(u64, f64)>,
}

impl Series {
    pub fn new(name: impl Into<String>) -> Series {
        Series { name: name.into(), points: Vec::new() }
    }

    pub fn push(&mut self, step: u64, value: f64) {
        self.points.push((step, value));
    }

    pub fn last(&self) -> Option<f64> {
        self.points.last().map(|&(_, value)| value)
    }

    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// About `most` points at most: the lowest and the highest of each segment, so that no peak is lost.
    fn thinned(&self, most: usize) -> Vec<(u64, f64)> {
        if self.points.len() <= most {
            return self.points.clone();
        }
        let stretch = self.points.len().div_ceil(most / 2);
        let extremes = |points: &[(u64, f64)]| {
            let by = |a: &&(u64, f64), b: &&(u64, f64)| a.1.total_cmp(&b.1);
            let mut kept: Vec<(u64, f64)> =
                points.iter().min_by(by).into_iter().chain(points.iter().max_by(by)).copied().collect();
            sort_few_by_key(&mut kept, |&(step, _)| step);
            kept.dedup_by_key(|&mut (step, _)| step);
            kept
        };
        self.points.chunks(stretch).flat_map(extremes).collect()
    }

    /// The points as data of the page. A number that is not finite is a gap.
    pub fn data(&self, name: &str, most: usize) -> Value {
        let points = self.thinned(most);
        let x: Vec<u64> = points.iter().map(|point| point.0).collect();
        let y: Vec<Option<f64>> = points.iter().map(|point| Some(point.1).filter(|y| y.is_finite())).collect();
        object! {"name": name, "x": x, "y": y}
    }

    /// Whether the page leaves out points.
    pub fn is_thinned(&self) -> bool {
        self.points.len() > MOST
    }
}

/// Prefixes of names, and the data they stand for.
const PARTS: [(&str, &str); 9] = [
    ("train_", "train"),
    ("train/", "train"),
    ("val_", "val"),
    ("val/", "val"),
    ("valid_", "val"),
    ("validation_", "val"),
    ("validation/", "val"),
    ("test_", "test"),
    ("test/", "test"),
];

/// Splits a name into the quantity and the data.
fn split(name: &str) -> (&str, Option<&'static str>) {
    for (beginning, part) in PARTS {
        if let Some(rest) = name.strip_prefix(beginning)
            && !rest.is_empty()
        {
            return (rest, Some(part));
        }
    }
    (name, None)
}

/// The charts of the page, in the order of their first curves.
pub(super) fn charts(series: &[Series]) -> Vec<Value> {
    let mut charts: Vec<(&str, Vec<&Series>)> = Vec::new();
    for series in series {
        let (title, _) = split(&series.name);
        match charts.iter_mut().find(|(other, _)| *other == title) {
            Some((_, all)) => all.push(series),
            None => charts.push((title, vec![series])),
        }
    }
    let chart = |(title, all): &(&str, Vec<&Series>)| {
        let curve = |series: &&Series| {
            // A curve without a prefix in a chart with others is that of training.
            let name = match split(&series.name).1 {
                Some(part) => part,
                None if all.len() > 1 => "train",
                None => &series.name,
            };
            series.data(name, MOST)
        };
        object! {"title": title, "series": all.iter().map(curve).collect::<Vec<_>>()}
    };
    charts.iter().map(chart).collect()
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_the_extremes() {
        let mut series = Series::new("loss");
        for step in 0..100_000 {
            series.push(step, if step == 77_777 { 50.0 } else { (step % 7) as f64 });
        }
        let thinned = series.thinned(MOST);
        assert!(thinned.len() <= MOST && thinned.contains(&(77_777, 50.0)));
        assert!(thinned.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn parts_of_the_data_share_a_chart() {
        let series = ["loss", "lr", "val_loss", "test/loss", "val_"].map(Series::new);
        let charts = charts(&series);
        let titles: Vec<&str> = charts.iter().filter_map(|chart| chart["title"].as_str()).collect();
        assert_eq!(titles, ["loss", "lr", "val_"]);
        let names: Vec<&str> =
            charts[0]["series"].as_array().into_iter().flatten().filter_map(|s| s["name"].as_str()).collect();
        assert_eq!(names, ["train", "val", "test"]);
    }
}
