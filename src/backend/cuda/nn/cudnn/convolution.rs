//! Convolutions by cuDNN, with a cached plan for each problem.
//!
//! The library's heuristics propose plans, best first. The first one is taken that is deterministic, has the required
//! precision and needs a modest workspace. Plans are not timed: the results of a program would depend on the noise of a
//! first run.

use super::{Descriptor, Failure, Functions, Library, Outcome, Raw, TYPE_DESCRIPTOR, TYPE_HANDLE};
use crate::backend::cuda::nn::conv::Kind;
use crate::backend::cuda::runtime::gpu::Gpu;
use crate::backend::spec::Conv;
use crate::storage::Storage;
use crate::{DType, Device, Result};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, PoisonError};

/// Constants of the library's interface.
mod number {
    use std::ffi::c_int;

    pub const DATA_TYPE: c_int = 1;
    pub const INT64: c_int = 3;
    pub const FLOAT: c_int = 4;
    pub const DOUBLE: c_int = 5;
    pub const VOID_PTR: c_int = 6;
    pub const CONVOLUTION_MODE: c_int = 7;
    pub const HEUR_MODE: c_int = 8;
    pub const NUMERICAL_NOTE: c_int = 11;

    pub const CONVOLUTION: c_int = 1;
    pub const ENGINE: c_int = 2;
    pub const ENGINE_CONFIG: c_int = 3;
    pub const ENGINE_HEURISTICS: c_int = 4;
    pub const EXECUTION_PLAN: c_int = 5;
    pub const FORWARD: c_int = 10;
    pub const BACKWARD_FILTER: c_int = 11;
    pub const BACKWARD_DATA: c_int = 12;
    pub const OPERATION_GRAPH: c_int = 15;
    pub const VARIANT_PACK: c_int = 16;
    pub const TENSOR: c_int = 17;

    pub const CONVOLUTION_COMP_TYPE: c_int = 100;
    pub const CONVOLUTION_CONV_MODE: c_int = 101;
    pub const CONVOLUTION_DILATIONS: c_int = 102;
    pub const CONVOLUTION_FILTER_STRIDES: c_int = 103;
    pub const CONVOLUTION_POST_PADDINGS: c_int = 104;
    pub const CONVOLUTION_PRE_PADDINGS: c_int = 105;
    pub const CONVOLUTION_SPATIAL_DIMS: c_int = 106;
    pub const HEURISTICS_MODE: c_int = 200;
    pub const HEURISTICS_GRAPH: c_int = 201;
    pub const HEURISTICS_RESULTS: c_int = 202;
    pub const CONFIG_ENGINE: c_int = 300;
    pub const PLAN_HANDLE: c_int = 400;
    pub const PLAN_CONFIG: c_int = 401;
    pub const PLAN_WORKSPACE_SIZE: c_int = 402;
    /// Alpha, beta, the convolution, and the tensors in the order of [`super::Tensors`].
    pub const FORWARD_ATTRIBUTES: [c_int; 6] = [700, 701, 702, 704, 703, 705];
    pub const BACKWARD_DATA_ATTRIBUTES: [c_int; 6] = [706, 707, 708, 710, 709, 711];
    pub const BACKWARD_FILTER_ATTRIBUTES: [c_int; 6] = [712, 713, 714, 716, 715, 717];
    pub const GRAPH_HANDLE: c_int = 800;
    pub const GRAPH_OPS: c_int = 801;
    pub const TENSOR_BYTE_ALIGNMENT: c_int = 900;
    pub const TENSOR_DATA_TYPE: c_int = 901;
    pub const TENSOR_DIMENSIONS: c_int = 902;
    pub const TENSOR_STRIDES: c_int = 903;
    pub const TENSOR_UNIQUE_ID: c_int = 906;
    pub const PACK_UNIQUE_IDS: c_int = 1000;
    pub const PACK_POINTERS: c_int = 1001;
    pub const PACK_WORKSPACE: c_int = 1003;
    pub const ENGINE_NUMERICAL_NOTE: c_int = 1303;

    /// The heuristic modes: the plans expected to be fast, and the fallback.
    pub const ADVICE: [c_int; 2] = [3, 2];
    pub const CROSS_CORRELATION: c_int = 1;

    pub const NOTE_TENSOR_CORE: c_int = 0;
    pub const NOTE_DOWN_CONVERT_INPUTS: c_int = 1;
    pub const NOTE_REDUCED_PRECISION_REDUCTION: c_int = 2;
    pub const NOTE_NONDETERMINISTIC: c_int = 4;
}

/// The largest workspace of a plan: one part in this many of the GPU's memory.
const WORKSPACE_PART: usize = 16;
/// The most configurations requested at a time.
const MOST_CONFIGS: usize = 64;

/// The key of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Problem {
    pub kind: Kind,
    pub conv: Conv,
    pub dtype: DType,
    /// Whether all tensors are in channels-last order: batch, positions, channels.
    pub channels_last: bool,
    /// The alignment of the addresses, in bytes.
    pub alignment: usize,
}

/// The addresses of `x`, the weight and `y`, or of their gradients.
pub(crate) type Tensors = [*const u8; 3];

/// The plans of a GPU; `None` for unsupported problems.
#[derive(Default)]
pub(super) struct Plans(Mutex<HashMap<Problem, Option<Arc<Plan>>>>);

struct Plan {
    plan: Descriptor,
    workspace: usize,
}

impl Problem {
    /// Runs the convolution. Returns `false`, without effects, if the library is missing, does not support the problem,
    /// or there is no memory for it.
    ///
    /// # Errors
    /// If the library fails.
    ///
    /// # Safety
    /// The addresses are those of tensors on this GPU with the sizes and the order of the problem, valid on this
    /// thread's stream, and no one else accesses the result.
    pub(crate) unsafe fn run(&self, op: &'static str, gpu: &Gpu, tensors: Tensors) -> Result<bool> {
        let Some(library) = Library::of(op, gpu)? else { return Ok(false) };
        let handle = library.lock();
        let Some(plan) = self.plan(op, gpu, library, handle.0)? else { return Ok(false) };
        // From the cache of this stream and back to it: later work on the stream runs after this.
        let Ok(workspace) = Storage::new(op, Device::Cuda(gpu.ordinal), plan.workspace) else { return Ok(false) };
        let run = || {
            let pack = Descriptor::new(library.functions, number::VARIANT_PACK)?;
            pack.set(number::PACK_UNIQUE_IDS, number::INT64, &[1_i64, 2, 3])?;
            pack.set(number::PACK_POINTERS, number::VOID_PTR, &tensors)?;
            pack.set(number::PACK_WORKSPACE, number::VOID_PTR, &[workspace.as_ptr()])?;
            let pack = pack.finalize("naming the tensors")?;
            let functions = library.functions;
            // SAFETY: the handle is locked, and stream, plan and pack are valid; the tensors are the caller's promise.
            unsafe {
                functions.check("setting the stream", (functions.set_stream)(handle.0, gpu.stream().cast()))?;
                functions.check("executing a convolution", (functions.execute)(handle.0, plan.plan.raw, pack.raw))
            }
        };
        run().map_err(|failure: Failure| failure.error(op))?;
        Ok(true)
    }

    fn plan(&self, op: &'static str, gpu: &Gpu, library: &Library, handle: Raw) -> Result<Option<Arc<Plan>>> {
        let mut plans = library.plans.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plan) = plans.get(self) {
            return Ok(plan.clone());
        }
        let plan = match self.make_plan(library.functions, handle, gpu.memory / WORKSPACE_PART) {
            Ok(plan) => plan.map(Arc::new),
            Err(failure) if failure.is_refusal() => None,
            Err(failure) => return Err(failure.error(op)),
        };
        plans.insert(*self, plan.clone());
        Ok(plan)
    }

    fn make_plan(&self, functions: &'static Functions, handle: Raw, most: usize) -> Outcome<Option<Plan>> {
        let Some(post) = self.post_padding() else { return Ok(None) };
        let operation = self.operation(functions, &post)?;
        let graph = Descriptor::new(functions, number::OPERATION_GRAPH)?;
        graph.set(number::GRAPH_HANDLE, TYPE_HANDLE, &[handle])?;
        graph.set_descriptors(number::GRAPH_OPS, &[&operation])?;
        let graph = graph.finalize("describing a convolution")?;
        let mut last = None;
        for mode in number::ADVICE {
            let configs = match configs(functions, &graph, mode) {
                Ok(configs) => configs,
                Err(failure) if failure.is_refusal() => continue,
                Err(failure) => return Err(failure),
            };
            for config in configs {
                match self.plan_of(functions, handle, &config) {
                    Ok(Some(plan)) if plan.workspace <= most => return Ok(Some(plan)),
                    Ok(_) => (),
                    Err(failure) if failure.is_refusal() => (),
                    Err(failure) => last = Some(failure),
                }
            }
        }
        last.map_or(Ok(None), Err)
    }

    /// The plan of a configuration, unless it is nondeterministic or less precise than required.
    fn plan_of(&self, functions: &'static Functions, handle: Raw, config: &Descriptor) -> Outcome<Option<Plan>> {
        let engine = Descriptor::new(functions, number::ENGINE)?;
        config.get(number::CONFIG_ENGINE, TYPE_DESCRIPTOR, &mut [engine.raw])?;
        let mut notes: [c_int; 32] = [-1; 32];
        let count = engine.get(number::ENGINE_NUMERICAL_NOTE, number::NUMERICAL_NOTE, &mut notes)?;
        let notes = &notes[..count.min(notes.len())];
        let exact = self.dtype == DType::F32 && !self.conv.tf32;
        let unwanted = |note: &c_int| match *note {
            number::NOTE_NONDETERMINISTIC | number::NOTE_REDUCED_PRECISION_REDUCTION => true,
            number::NOTE_TENSOR_CORE | number::NOTE_DOWN_CONVERT_INPUTS => exact,
            _ => false,
        };
        if notes.iter().any(unwanted) {
            return Ok(None);
        }
        let plan = Descriptor::new(functions, number::EXECUTION_PLAN)?;
        plan.set(number::PLAN_HANDLE, TYPE_HANDLE, &[handle])?;
        plan.set_descriptors(number::PLAN_CONFIG, &[config])?;
        let plan = plan.finalize("planning a convolution")?;
        let mut workspace = [0_i64];
        plan.get(number::PLAN_WORKSPACE_SIZE, number::INT64, &mut workspace)?;
        Ok(Some(Plan { plan, workspace: workspace[0].max(0) as usize }))
    }

    /// The number of spatial dimensions, 2 or 3.
    fn rank(&self) -> usize {
        let Conv { input, output, kernel, pad, .. } = &self.conv;
        if [input[0], output[0], kernel[0]] == [1; 3] && pad[0] == 0 { 2 } else { 3 }
    }

    fn dims(&self, of: [usize; 3]) -> SmallVec<[i64; 3]> {
        of[3 - self.rank()..].iter().map(|&size| size as i64).collect()
    }

    /// The padding at the end that gives the output its size; `None` if there is none.
    fn post_padding(&self) -> Option<[usize; 3]> {
        let Conv { input, output, kernel, stride, pad, dilation, .. } = &self.conv;
        let mut post = [0; 3];
        for dim in 0..3 {
            let span = dilation[dim] * (kernel[dim] - 1) + 1;
            let reach = (output[dim] - 1) * stride[dim] + span;
            // If symmetric padding gives the same windows, it is used instead: the library supports it better.
            post[dim] = reach.saturating_sub(input[dim] + pad[dim]);
            let windows =
                |post: usize| (input[dim] + pad[dim] + post).checked_sub(span).map(|rest| rest / stride[dim] + 1);
            if windows(pad[dim]) == Some(output[dim]) {
                post[dim] = pad[dim];
            }
            if windows(post[dim]) != Some(output[dim]) {
                return None;
            }
        }
        Some(post)
    }

    /// The descriptor of a tensor with this size and id, in the problem's order.
    fn tensor(&self, functions: &'static Functions, id: i64, first: [usize; 2], of: [usize; 3]) -> Outcome<Descriptor> {
        let positions = self.dims(of);
        let sizes: SmallVec<[i64; 5]> = first.iter().map(|&size| size as i64).chain(positions).collect();
        let mut strides: SmallVec<[i64; 5]> = SmallVec::from_elem(1, sizes.len());
        let rank = sizes.len();
        // From the innermost dimension outwards.
        let order: SmallVec<[usize; 5]> = if self.channels_last {
            [1].into_iter().chain((2..rank).rev()).chain([0]).collect()
        } else {
            (0..rank).rev().collect()
        };
        let mut step = 1;
        for dim in order {
            strides[dim] = step;
            step *= sizes[dim];
        }
        let tensor = Descriptor::new(functions, number::TENSOR)?;
        tensor.set(number::TENSOR_DATA_TYPE, number::DATA_TYPE, &[data_type(self.dtype)])?;
        tensor.set(number::TENSOR_DIMENSIONS, number::INT64, &sizes)?;
        tensor.set(number::TENSOR_STRIDES, number::INT64, &strides)?;
        tensor.set(number::TENSOR_UNIQUE_ID, number::INT64, &[id])?;
        tensor.set(number::TENSOR_BYTE_ALIGNMENT, number::INT64, &[self.alignment as i64])?;
        tensor.finalize("describing a tensor")
    }

    fn operation(&self, functions: &'static Functions, post: &[usize; 3]) -> Outcome<Descriptor> {
        let Conv { batch, groups, c_in, c_out, input, output, kernel, stride, pad, dilation, .. } = self.conv;
        let compute = if self.dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let window = Descriptor::new(functions, number::CONVOLUTION)?;
        window.set(number::CONVOLUTION_SPATIAL_DIMS, number::INT64, &[self.rank() as i64])?;
        window.set(number::CONVOLUTION_COMP_TYPE, number::DATA_TYPE, &[data_type(compute)])?;
        window.set(number::CONVOLUTION_CONV_MODE, number::CONVOLUTION_MODE, &[number::CROSS_CORRELATION])?;
        window.set(number::CONVOLUTION_DILATIONS, number::INT64, &self.dims(dilation))?;
        window.set(number::CONVOLUTION_FILTER_STRIDES, number::INT64, &self.dims(stride))?;
        window.set(number::CONVOLUTION_PRE_PADDINGS, number::INT64, &self.dims(pad))?;
        window.set(number::CONVOLUTION_POST_PADDINGS, number::INT64, &self.dims(*post))?;
        let window = window.finalize("describing the windows")?;
        let tensors = [
            self.tensor(functions, 1, [batch, groups * c_in], input)?,
            self.tensor(functions, 2, [groups * c_out, c_in], kernel)?,
            self.tensor(functions, 3, [batch, groups * c_out], output)?,
        ];
        let (kind, attributes) = match self.kind {
            Kind::Forward => (number::FORWARD, number::FORWARD_ATTRIBUTES),
            Kind::Input => (number::BACKWARD_DATA, number::BACKWARD_DATA_ATTRIBUTES),
            Kind::Weight => (number::BACKWARD_FILTER, number::BACKWARD_FILTER_ATTRIBUTES),
        };
        let operation = Descriptor::new(functions, kind)?;
        for (name, value) in attributes.into_iter().zip([1.0_f64, 0.0]) {
            if compute == DType::F64 {
                operation.set(name, number::DOUBLE, &[value])?;
            } else {
                operation.set(name, number::FLOAT, &[value as f32])?;
            }
        }
        operation.set_descriptors(attributes[2], &[&window])?;
        for (name, tensor) in attributes[3..].iter().zip(&tensors) {
            operation.set_descriptors(*name, &[tensor])?;
        }
        operation.finalize("describing a convolution")
    }
}

/// The configurations of the heuristics, best first.
fn configs(functions: &'static Functions, graph: &Descriptor, mode: c_int) -> Outcome<Vec<Descriptor>> {
    let heuristics = Descriptor::new(functions, number::ENGINE_HEURISTICS)?;
    heuristics.set_descriptors(number::HEURISTICS_GRAPH, &[graph])?;
    heuristics.set(number::HEURISTICS_MODE, number::HEUR_MODE, &[mode])?;
    let heuristics = heuristics.finalize("asking the heuristics")?;
    let count = heuristics.get::<Raw>(number::HEURISTICS_RESULTS, TYPE_DESCRIPTOR, &mut [])?;
    let new = |_| Descriptor::new(functions, number::ENGINE_CONFIG);
    let mut configs = (0..count.min(MOST_CONFIGS)).map(new).collect::<Outcome<Vec<_>>>()?;
    if configs.is_empty() {
        return Ok(configs);
    }
    let mut raws: Vec<Raw> = configs.iter().map(|config| config.raw).collect();
    let given = heuristics.get(number::HEURISTICS_RESULTS, TYPE_DESCRIPTOR, &mut raws)?;
    configs.truncate(given);
    Ok(configs)
}

fn data_type(dtype: DType) -> c_int {
    match dtype {
        DType::F64 => 1,
        DType::F16 => 2,
        DType::BF16 => 9,
        _ => 0,
    }
}
