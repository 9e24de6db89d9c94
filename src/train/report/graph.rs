//! The graph of a model as a drawing: layers from the inputs at the top to the loss at the bottom.
//!
//! A layered drawing: each node gets a layer; an edge that crosses layers gets a point in each of them; layers are sorted by
//! the positions of neighbours; then x positions are set as close to the mean of the neighbours as there is room.

use super::escape;
use crate::autograd::DrawnNode;
use crate::order::sort_by;
use std::collections::HashMap;
use std::fmt::Write;

/// The most nodes of a drawing.
pub(super) const MOST: usize = 400;

const HEIGHT: f64 = 34.0;
const LAYER: f64 = 64.0;
const GAP: f64 = 16.0;
const LETTER: f64 = 6.8;

/// An item of a layer: a node, or a point of an edge.
struct Spot {
    /// `None` for a point of an edge.
    node: Option<usize>,
    width: f64,
    x: f64,
    above: Vec<usize>,
    below: Vec<usize>,
}

/// All spots, and those of each layer from left to right.
struct Layout {
    spots: Vec<Spot>,
    layers: Vec<Vec<usize>>,
}

/// The drawing as SVG; `names` are those of leaves.
pub(super) fn svg(nodes: &[DrawnNode], names: &HashMap<u64, String>) -> String {
    let label = |node: &DrawnNode| names.get(&node.seq).cloned().unwrap_or_else(|| node.name.clone());
    let shape = |node: &DrawnNode| format!("{:?}", node.shape);
    let width = |node: &DrawnNode| label(node).chars().count().max(shape(node).chars().count()) as f64 * LETTER + 20.0;
    let mut layout = Layout::new(nodes, &nodes.iter().map(width).collect::<Vec<_>>());
    layout.sort();
    layout.position();
    let (left, right) = layout.bounds();
    let (wide, high) = (right - left + 2.0 * GAP, layout.layers.len() as f64 * LAYER);
    let mut svg = format!(
        "<svg class=\"graph\" viewBox=\"0 0 {wide:.0} {high:.0}\" width=\"{wide:.0}\" height=\"{high:.0}\" role=\"img\" \
         aria-label=\"graph of {} operations and leaves\">",
        nodes.len()
    );
    let at = |spot: usize| layout.spots[spot].x - left + GAP;
    let middle = |layer: usize| layer as f64 * LAYER + LAYER / 2.0;
    for (layer, spots) in layout.layers.iter().enumerate() {
        for &spot in spots {
            for &below in &layout.spots[spot].below {
                let from = middle(layer) + if layout.spots[spot].node.is_some() { HEIGHT / 2.0 } else { 0.0 };
                let to = middle(layer + 1) - if layout.spots[below].node.is_some() { HEIGHT / 2.0 } else { 0.0 };
                let (x, end, half) = (at(spot), at(below), (from + to) / 2.0);
                let _ =
                    write!(svg, "<path d=\"M{x:.1} {from:.1}C{x:.1} {half:.1} {end:.1} {half:.1} {end:.1} {to:.1}\"/>");
            }
        }
    }
    for (layer, spots) in layout.layers.iter().enumerate() {
        for &spot in spots {
            let Some(node) = layout.spots[spot].node.map(|at| &nodes[at]) else { continue };
            let (x, y, wide) = (at(spot), middle(layer), layout.spots[spot].width);
            let class = if node.is_leaf { "leaf" } else { "op" };
            let radius = if node.is_leaf { 4.0 } else { HEIGHT / 2.0 };
            let _ = write!(
                svg,
                "<g class=\"{class}\"><title>{}</title><rect x=\"{:.1}\" y=\"{:.1}\" width=\"{wide:.1}\" height=\"{HEIGHT}\" \
                 rx=\"{radius}\"/><text x=\"{x:.1}\" y=\"{:.1}\">{}</text><text class=\"dim\" x=\"{x:.1}\" y=\"{:.1}\">{}</text></g>",
                escape(&format!("{}: {}", label(node), node.detail)),
                x - wide / 2.0,
                y - HEIGHT / 2.0,
                y - 2.0,
                escape(&label(node)),
                y + 11.0,
                escape(&shape(node)),
            );
        }
    }
    svg.push_str("</svg>");
    svg
}

impl Layout {
    fn new(nodes: &[DrawnNode], widths: &[f64]) -> Layout {
        let ranks = ranks(nodes);
        let layers = ranks.iter().max().map_or(0, |last| last + 1);
        let mut layout = Layout { spots: Vec::new(), layers: vec![Vec::new(); layers] };
        for (at, &width) in widths.iter().enumerate() {
            layout.add(ranks[at], Some(at), width);
        }
        for (at, node) in nodes.iter().enumerate() {
            for &input in &node.inputs {
                let mut above = input;
                for layer in ranks[input] + 1..ranks[at] {
                    let point = layout.add(layer, None, 0.0);
                    layout.join(above, point);
                    above = point;
                }
                layout.join(above, at);
            }
        }
        layout
    }

    fn add(&mut self, layer: usize, node: Option<usize>, width: f64) -> usize {
        let at = self.spots.len();
        self.spots.push(Spot { node, width, x: 0.0, above: Vec::new(), below: Vec::new() });
        self.layers[layer].push(at);
        at
    }

    fn join(&mut self, above: usize, below: usize) {
        self.spots[above].below.push(below);
        self.spots[below].above.push(above);
    }

    /// Sorts each layer by the positions of its neighbours, sweeping down and up alternately.
    fn sort(&mut self) {
        let mut order = vec![0.0; self.spots.len()];
        for layer in &self.layers {
            layer.iter().enumerate().for_each(|(at, &spot)| order[spot] = at as f64);
        }
        let count = self.layers.len();
        for sweep in 0..12 {
            for step in 0..count {
                let layer = if sweep % 2 == 0 { step } else { count - 1 - step };
                let spots = &self.spots;
                let center = |spot: &usize| {
                    let neighbours = if sweep % 2 == 0 { &spots[*spot].above } else { &spots[*spot].below };
                    mean(neighbours.iter().map(|&other| order[other])).unwrap_or(order[*spot])
                };
                let mut sorted: Vec<(f64, usize)> = self.layers[layer].iter().map(|s| (center(s), *s)).collect();
                sort_by(&mut sorted, |a, b| a.0.total_cmp(&b.0));
                self.layers[layer] = sorted.into_iter().map(|(_, spot)| spot).collect();
                self.layers[layer].iter().enumerate().for_each(|(at, &spot)| order[spot] = at as f64);
            }
        }
    }

    /// Moves spots towards the mean of their neighbours, as far as there is room.
    fn position(&mut self) {
        for layer in &self.layers {
            let mut x = 0.0;
            for &spot in layer {
                self.spots[spot].x = x + self.spots[spot].width / 2.0;
                x += self.spots[spot].width + GAP;
            }
        }
        for round in 0..40 {
            for layer in &self.layers {
                let wanted: Vec<f64> = layer
                    .iter()
                    .map(|&spot| {
                        let own = &self.spots[spot];
                        let neighbours: &mut dyn Iterator<Item = &usize> = match round % 3 {
                            0 => &mut own.above.iter(),
                            1 => &mut own.below.iter(),
                            _ => &mut own.above.iter().chain(&own.below),
                        };
                        mean(neighbours.map(|&other| self.spots[other].x)).unwrap_or(own.x)
                    })
                    .collect();
                let widths: Vec<f64> = layer.iter().map(|&spot| self.spots[spot].width).collect();
                for (&spot, x) in layer.iter().zip(apart(&wanted, &widths)) {
                    self.spots[spot].x = x;
                }
            }
        }
    }

    fn bounds(&self) -> (f64, f64) {
        let edges = self.spots.iter().map(|spot| (spot.x - spot.width / 2.0, spot.x + spot.width / 2.0));
        edges.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), (left, right)| (a.min(left), b.max(right)))
    }
}

/// Positions near the wanted ones without overlap: the mean of pushing all to the right and all to the left.
fn apart(wanted: &[f64], widths: &[f64]) -> Vec<f64> {
    let room = |k: usize| (widths[k] + widths[k - 1]) / 2.0 + GAP;
    let (mut right, mut left) = (wanted.to_vec(), wanted.to_vec());
    for k in 1..wanted.len() {
        right[k] = right[k].max(right[k - 1] + room(k));
    }
    for k in (1..wanted.len()).rev() {
        left[k - 1] = left[k - 1].min(left[k] - room(k));
    }
    right.iter().zip(&left).map(|(a, b)| (a + b) / 2.0).collect()
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// The layer of each node: an operation below its inputs, a leaf right above what uses it first.
fn ranks(nodes: &[DrawnNode]) -> Vec<usize> {
    // One more than needed, so that there is a layer above the first operations.
    let mut ranks = vec![0; nodes.len()];
    for (at, node) in nodes.iter().enumerate() {
        if !node.is_leaf {
            ranks[at] = 1 + node.inputs.iter().map(|&input| ranks[input]).max().unwrap_or(0);
        }
    }
    let mut first_use = vec![usize::MAX; nodes.len()];
    for (at, node) in nodes.iter().enumerate() {
        node.inputs.iter().for_each(|&input| first_use[input] = first_use[input].min(ranks[at]));
    }
    for (at, node) in nodes.iter().enumerate() {
        if node.is_leaf && first_use[at] != usize::MAX {
            ranks[at] = first_use[at] - 1;
        }
    }
    ranks
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;
    use crate::Result;
    use crate::autograd::drawn;

    #[test]
    fn nodes_of_a_layer_stand_apart_and_below_their_inputs() -> Result<()> {
        let leaf = |k: f64| crate::tensor!([1.0, 2.0])?.mul(k)?.requires_grad_(true);
        let (a, b, c) = (leaf(1.0)?, leaf(2.0)?, leaf(3.0)?);
        let loss = a.mul(&b)?.add(&c)?.mul(&a)?.sum(..)?;
        let nodes = drawn("test", &loss)?;
        let mut layout = Layout::new(&nodes, &vec![50.0; nodes.len()]);
        layout.sort();
        layout.position();
        for layer in &layout.layers {
            for pair in layer.windows(2) {
                let [left, right] = [pair[0], pair[1]].map(|at| &layout.spots[at]);
                assert!(right.x - left.x >= (left.width + right.width) / 2.0 + GAP - 1e-6);
            }
        }
        let layer_of = |spot: usize| layout.layers.iter().position(|layer| layer.contains(&spot));
        for spot in 0..layout.spots.len() {
            for &below in &layout.spots[spot].below {
                assert_eq!(layer_of(spot).map(|layer| layer + 1), layer_of(below));
            }
        }
        let names = HashMap::from([(nodes[0].seq, "weight <1>".to_string())]);
        let svg = svg(&nodes, &names);
        assert!(svg.contains("weight &lt;1&gt;") && !svg.contains("NaN"), "{svg}");
        Ok(())
    }
}
