//! The graph as text.

use super::{leaf, refused, scalar};
use cotangent::autograd::{ForwardContext, Function, FunctionContext, apply, graph_stats, to_dot};
use cotangent::{Result, Tensor, error::Name, tensor};

#[test]
fn a_drawing_has_every_node_and_every_edge() -> Result<()> {
    let (x, w) = (leaf([1.0, 2.0])?, tensor!(3.0)?.requires_grad_(true)?);
    let h = x.mul(&w)?;
    let y = h.add(&h)?.exp()?;
    let expected = r#"digraph cotangent {
  rankdir=TB;
  node [shape=ellipse, fontname="sans-serif"];
  n0 [label="leaf\n[2] f64", shape=box, style=filled, fillcolor=lightblue];
  n1 [label="leaf\n[] f32", shape=box, style=filled, fillcolor=lightblue];
  n2 [label="mul\n[2] f64\nsaves 20 B"];
  n3 [label="add\n[2] f64"];
  n4 [label="exp\n[2] f64\nsaves 16 B", peripheries=2];
  n0 -> n2 [label="0"];
  n1 -> n2 [label="1"];
  n2 -> n3 [label="0"];
  n2 -> n3 [label="1"];
  n3 -> n4;
}
"#;
    assert_eq!(to_dot(&y)?, expected);
    let stats = graph_stats(&y);
    assert_eq!((stats.nodes, stats.edges, stats.leaves, stats.saved_bytes), (5, 5, 2, 36));
    y.sum(..)?.backward()?;
    assert!(to_dot(&y)?.contains("freed"));
    assert_eq!(graph_stats(&y).saved_bytes, 0);
    Ok(())
}

#[test]
fn constants_have_no_graph() -> Result<()> {
    let x = Tensor::ones([2])?;
    refused(to_dot(&x), &["to_dot", "no graph"]);
    assert_eq!(graph_stats(&x), Default::default());
    assert_eq!(graph_stats(&x.requires_grad_(true)?).leaves, 1);
    Ok(())
}

#[test]
fn long_chains_are_drawn_without_recursion() -> Result<()> {
    let x = scalar(1.0)?;
    let mut y = x.clone();
    for _ in 0..100_000 {
        y = y.add(&y)?.mul(0.5)?;
    }
    let stats = graph_stats(&y);
    assert_eq!((stats.nodes, stats.edges), (200_001, 300_000));
    let dot = to_dot(&y)?;
    assert_eq!((dot.matches(" -> ").count(), dot.matches("peripheries=2").count()), (300_000, 1));
    Ok(())
}

struct Odd;

impl Function for Odd {
    fn name(&self) -> Name {
        "a \"quoted\\\" name".into()
    }

    fn forward(&self, _: &mut ForwardContext, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(vec![inputs[0].neg()?])
    }

    fn backward(&self, _: &FunctionContext, g: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(g[0].neg()?)])
    }
}

#[test]
fn names_are_escaped() -> Result<()> {
    let dot = to_dot(&apply(Odd, &[&scalar(1.0)?])?)?;
    assert!(dot.contains(r#"[label="a \"quoted\\\" name\n[] f64"#), "{dot}");
    Ok(())
}
