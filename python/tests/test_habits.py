"""Programs of people who come from PyTorch give what PyTorch gives: its answers are in habits/answers.json."""

import json

import numpy as np
import pytest

import cotangent as ct

import habits

ANSWERS = habits.answers()


@pytest.mark.parametrize("program", habits.programs())
def test_habit(program):
    tutorial = habits.HERE / "tutorials" / program
    text = tutorial.read_text() if program.endswith(".py") else program
    if ct.cuda.is_available() and ("cuda" in text or "accelerator" in text):
        pytest.skip("PyTorch's answer is of a machine without a GPU")
    found = json.loads(json.dumps(habits.evaluate(ct, program)))
    assert habits.same(found, ANSWERS[program]), f"{found} is not PyTorch's {ANSWERS[program]}"


def test_every_program_has_an_answer():
    assert list(ANSWERS) == habits.programs()


def test_shapes_change_in_place_and_views_stay():
    x = ct.arange(6.0).reshape(2, 3).clone()
    before, row = x.view(6), x[0]
    assert x.unsqueeze_(0) is x and x.shape == (1, 2, 3)
    after = x[0, 1]
    x += 10
    assert before.tolist() == [10, 11, 12, 13, 14, 15] and row.tolist() == [10, 11, 12] and after.tolist() == [13, 14, 15]
    before[0] = 0
    row[1] = 1
    after.zero_()
    assert x.tolist() == [[[0, 1, 12], [0, 0, 0]]]
    x.squeeze_().t_()
    assert x.tolist() == [[0, 0], [1, 0], [12, 0]]
    x[2, 1] = 7
    assert before.tolist() == [0, 1, 12, 0, 0, 7]


def test_shapes_of_leaves_and_graphs():
    w = ct.ones(2, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="unsqueeze_: a leaf"):
        w.unsqueeze_(0)
    y = w * 2
    y.t_()
    (y * ct.arange(6.0).reshape(3, 2)).sum().backward()
    assert w.grad.tolist() == [[0, 4, 8], [2, 6, 10]]


def test_gradients_of_named_inputs():
    w, u = ct.ones(2, requires_grad=True), ct.ones(2, requires_grad=True)
    y = (w * u).sum()
    y.backward(inputs=[w], retain_graph=True)
    held = w.grad
    y.backward(inputs=[w])
    assert held is w.grad and held.tolist() == [2, 2] and u.grad is None
    with pytest.raises(NotImplementedError, match="create_graph requires inputs"):
        (w * 2).sum().backward(create_graph=True)
    x = ct.tensor([2.0], requires_grad=True)
    (x**3).sum().backward(inputs=x, create_graph=True)
    (second,) = ct.autograd.grad(x.grad.sum(), x)
    assert x.grad.tolist() == [12] and second.tolist() == [12]
    (x * 5).sum().backward()
    assert x.grad.tolist() == [17] and not x.grad.requires_grad


def test_std_refuses_both_kinds_of_correction():
    x = ct.ones(3)
    with pytest.raises(TypeError, match="unbiased or correction"):
        x.std(0, True, correction=1)
    with pytest.raises(TypeError, match="dim and keepdim"):
        x.var(0, axis=0)
    np.testing.assert_allclose(np.asarray(ct.std(ct.arange(4.0), axis=0, correction=0)), np.arange(4.0).std(), rtol=1e-6)


def test_a_generator_leaves_the_others_alone():
    ct.manual_seed(1)
    wanted = ct.rand(2).tolist()
    ct.manual_seed(1)
    g = ct.Generator().manual_seed(7)
    first = ct.randn(3, generator=g)
    assert ct.rand(2).tolist() == wanted
    second = ct.randn(3, generator=g)
    assert first.tolist() != second.tolist()
    g.manual_seed(7)
    assert ct.randn(3, generator=g).tolist() == first.tolist()
    with pytest.raises(TypeError, match="generator must be a Generator"):
        ct.rand(2, generator=3)
    with pytest.raises(TypeError, match="no parameter generator"):
        ct.zeros(2, generator=g)


def test_sizes_and_elements_make_tensors():
    assert ct.Tensor(2, 3).tolist() == [[0, 0, 0], [0, 0, 0]] and ct.Tensor().shape == (0,)
    assert ct.Tensor(ct.tensor([1, 2])).dtype is ct.int64
    with pytest.raises(TypeError, match="one sequence"):
        ct.Tensor([1], [2])


def test_what_is_absent_says_what_there_is_instead():
    for name, text in [("hub", "cotangent.load"), ("onnx", "save_safetensors"), ("profiler", "utils.benchmark")]:
        with pytest.raises(AttributeError, match=text):
            getattr(ct, name)
    assert not hasattr(ct, "no_such_name") and not hasattr(ct, "no_such_name_")
    for name, text in [("untyped_storage", "DLPack"), ("resize_", "keeps the shape")]:
        with pytest.raises(NotImplementedError, match=f"{name}: .*{text}"):
            getattr(ct.ones(2), name)()
    with pytest.raises(AttributeError, match="name the GPUs|nvidia-smi"):
        ct.cuda.get_device_name
    with pytest.raises(NotImplementedError, match="gradients are dense"):
        ct.nn.Embedding(3, 2, sparse=True)


def test_compilers_return_what_they_are_given():
    @ct.jit.script
    def twice(x: ct.Tensor) -> ct.Tensor:
        return x + x

    @ct.compiler.disable
    def thrice(x):
        return x * 3

    @ct.jit.ignore(drop=True)
    def never(x):
        return x

    layer = ct.nn.Linear(2, 3)
    x = ct.ones(1, 2)
    assert twice(ct.ones(2)).tolist() == [2, 2] and thrice(ct.ones(2)).tolist() == [3, 3] and never(1) == 1
    assert ct.jit.trace(layer, x) is layer and ct.jit.script(layer) is layer and ct.jit.freeze(layer) is layer
    assert ct.compiler.disable(recursive=False)(twice) is twice and not ct.compiler.is_compiling() and not ct.jit.is_scripting()
    assert ct.jit.annotate(list[int], [1]) == [1] and ct.jit.isinstance(x, ct.Tensor)
    with pytest.raises(AttributeError, match="save the state dict"):
        ct.jit.save
    with pytest.raises(TypeError, match="not compiled"):
        ct.jit.ScriptFunction()


def test_an_optimizer_of_ones_own_names_what_must_be_given():
    from cotangent.optim.optimizer import Optimizer, required

    class Plain(Optimizer):
        def __init__(self, params, lr=required):
            if lr is required:
                raise ValueError("lr must be given")
            super().__init__(params, {"lr": lr})

    w = ct.nn.Parameter(ct.ones(2))
    assert Plain([w], lr=0.5).param_groups[0]["lr"] == 0.5 and repr(required) == "<required parameter>"
    with pytest.raises(ValueError, match="lr must be given"):
        Plain([w])


def test_numbers_may_come_before_tensors_as_in_old_programs():
    x, y, z = ct.ones(2), ct.full((2,), 3.0), ct.full((2,), 5.0)
    assert ct.add(x, 2, y).tolist() == [7, 7] and x.sub(0.5, y).tolist() == [-0.5, -0.5]
    assert x.clone().add_(0.5, y).tolist() == [2.5, 2.5] and x.add(y, alpha=2).tolist() == [7, 7]
    assert ct.addcmul(x, 2, y, z).tolist() == [31, 31] and x.clone().addcmul_(2, y, z).tolist() == [31, 31]
    assert x.clone().addcdiv_(-5, y, z).tolist() == [-2, -2] and x.addcmul(y, z, value=2).tolist() == [31, 31]


def test_results_are_new_tensors_and_out_may_be_none():
    x = ct.ones(2)
    assert ct.mul(x, x, out=None).tolist() == [1, 1]
    with pytest.raises(TypeError, match="does not support out: use the result"):
        ct.mul(x, x, out=ct.zeros(2))


def test_arrays_become_tensors_of_the_default_dtype():
    import numpy as np

    assert ct.Tensor(np.array([1, 2], dtype=np.int32)).dtype is ct.float32 and ct.Tensor(np.array([1.5])).tolist() == [1.5]
    assert ct.Tensor(ct.tensor([1, 2])).dtype is ct.int64


def test_shapes_are_sizes_and_tuples_are_elements():
    x = ct.zeros(2, 3)
    assert ct.Tensor(x.shape).shape == (2, 3) and ct.Tensor(x.size()).dtype is ct.float32
    assert ct.Tensor((2, 3)).tolist() == [2, 3]


def test_bytes_are_masks_as_they_once_were():
    mask = ct.tensor([1, 0, 2], dtype=ct.uint8)
    assert ct.where(mask, ct.ones(3), ct.zeros(3)).tolist() == [1, 0, 1]
    with pytest.raises(TypeError, match="condition must be bool"):
        ct.where(mask.long(), ct.ones(3), ct.zeros(3))


def test_nothing_is_fetched():
    from cotangent.utils import model_zoo

    with pytest.raises(RuntimeError, match="downloads are not supported; download http://a/b"):
        model_zoo.load_url("http://a/b")
    assert not ct.cuda._initialized


def test_rows_from_the_last_to_the_first():
    x = ct.tensor([[1, 2], [3, 4]])
    assert [row.tolist() for row in reversed(x)] == [[3, 4], [1, 2]]
    assert [part.tolist() for part in x.split(split_size=1)] == [[[1, 2]], [[3, 4]]] and len(x.split([1, 1], dim=1)) == 2


def test_the_identity_takes_anything():
    layer = ct.nn.Identity()
    assert layer(None) is None and layer(x := ct.ones(1)) is x


def test_subclasses_of_convolutions_give_other_weights():
    layer, x = ct.nn.Conv2d(2, 3, 3, padding=1, stride=2), ct.ones(1, 2, 5, 5)
    assert (layer._conv_forward(x, layer.weight, layer.bias) == layer(x)).all()
    assert (layer._conv_forward(x, layer.weight * 0, None) == 0).all()


def test_functions_of_ones_own_run_with_or_without_autocast():
    class Twice(ct.autograd.Function):
        @staticmethod
        @ct.amp.custom_fwd(device_type="cuda", cast_inputs=ct.float16)
        def forward(ctx, x):
            ctx.seen = x.dtype
            return x * 2

        @staticmethod
        @ct.cuda.amp.custom_bwd
        def backward(ctx, g):
            assert not ct.amp.is_autocast_enabled()
            return g * 2

    x = ct.ones(2, requires_grad=True)
    Twice.apply(x).sum().backward()
    with ct.autocast("cpu", dtype=ct.bfloat16):
        seen = []

        class Seen(ct.autograd.Function):
            @staticmethod
            @ct.amp.custom_fwd(device_type="cpu", cast_inputs=ct.float32)
            def forward(ctx, x):
                seen.append((x.dtype, ct.amp.is_autocast_enabled()))
                return x * 2

            @staticmethod
            @ct.amp.custom_bwd(device_type="cpu")
            def backward(ctx, g):
                seen.append(ct.amp.is_autocast_enabled())
                return g * 2

        Seen.apply(ct.ones(2, dtype=ct.bfloat16, requires_grad=True)).sum().backward()
    assert seen == [(ct.float32, False), False]
    assert x.grad.tolist() == [2, 2] and ct.amp._cast([x, {"a": x}, 1], ct.float16)[1]["a"].dtype is ct.float16


def test_states_of_random_numbers_are_kept_for_checkpoints():
    from cotangent.utils.checkpoint import get_device_states, set_device_states
    from cotangent.utils.hooks import RemovableHandle

    devices, states = get_device_states(ct.ones(1), 2)
    set_device_states(devices, states)
    assert devices == [] and not ct.backends.mkldnn.is_available()
    assert isinstance(ct.nn.Linear(1, 1).register_forward_hook(lambda *_: None), RemovableHandle)


def test_there_is_one_process():
    from cotangent.distributed import init_process_group

    assert not ct.distributed.is_available() and not ct.distributed.is_initialized() and not ct.distributed.is_nccl_available()
    with pytest.raises(RuntimeError, match="distributed.init_process_group: there is one process"):
        init_process_group("nccl")
    with pytest.raises(RuntimeError, match="distributed.all_reduce: "):
        ct.distributed.all_reduce(ct.ones(1))
    with pytest.raises(AttributeError, match="has no attribute 'all_to_all': there is one process"):
        ct.distributed.all_to_all


def test_bytes_as_elements_of_another_dtype():
    x = ct.tensor([1.0, 2.0])
    assert x.view(ct.int32).tolist() == np.array([1, 2], "float32").view("int32").tolist()
    assert ct.ones(2, 4).view(ct.float64).shape == (2, 2) and x.view(dtype=ct.uint8).shape == (8,)
    with pytest.raises(RuntimeError, match="must be a multiple of 8 bytes, got 3 elements of 4 bytes"):
        ct.ones(3).view(ct.float64)
    with pytest.raises(RuntimeError, match="0-d"):
        ct.tensor(1.0).view(ct.float64)


def test_workers_begin_with_a_function_and_know_their_number():
    class Numbers(ct.data.Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            info = ct.data.get_worker_info()
            return info.id, info.num_workers

    begun = []
    found = list(ct.data.DataLoader(Numbers(), batch_size=1, num_workers=2, worker_init_fn=begun.append))
    assert begun and set(begun) <= {0, 1} and {int(worker) for worker, _ in found} <= {0, 1}
    assert {int(count) for _, count in found} == {2} and ct.data.get_worker_info() is None


def test_a_hook_of_the_backward_pass_may_not_change_what_is_computed():
    net = ct.nn.Sequential(ct.nn.Linear(3, 4), ct.nn.Tanh(), ct.nn.Linear(4, 1))
    x = ct.randn(5, 3)
    net(x).sum().backward()
    wanted = [p.grad.tolist() for p in net.parameters()]
    net.zero_grad()
    seen = []
    handles = [m.register_full_backward_hook(lambda m, gi, go: seen.append((len(gi), go[0].shape))) for m in net]
    net(x).sum().backward()
    assert [p.grad.tolist() for p in net.parameters()] == wanted and len(seen) == 3
    for handle in handles:
        handle.remove()
    with ct.no_grad():
        net.register_full_backward_hook(lambda m, gi, go: None)
        assert not net(x).requires_grad


def test_hooks_after_a_gradient_has_been_added():
    w, u = ct.ones(2, requires_grad=True), ct.ones(2, requires_grad=True)
    seen = []
    w.register_post_accumulate_grad_hook(lambda p: seen.append(p is w))
    u.sum().backward()
    assert seen == []
    (w * u).sum().backward()
    assert seen == [True]
    with pytest.raises(RuntimeError, match="must be a leaf"):
        (w * 2).register_post_accumulate_grad_hook(print)


def test_comparisons_name_what_differs():
    with pytest.raises(AssertionError, match=r"Mismatched elements: 1 / 2 \(50.0%\)"):
        ct.testing.assert_close(ct.tensor([1.0, 2.0]), ct.tensor([1.0, 3.0]))
    with pytest.raises(AssertionError, match="attribute 'dtype'"):
        ct.testing.assert_close(ct.ones(2), ct.ones(2, dtype=ct.float64))
    with pytest.raises(AssertionError, match="attribute 'shape'"):
        ct.testing.assert_close(ct.ones(2), ct.ones(3))
    with pytest.raises(AssertionError, match="Expected 2 but got 1"):
        ct.testing.assert_close({"a": [1]}, {"a": [2]})
    ct.testing.assert_close(ct.tensor([float("nan")]), ct.tensor([float("nan")]), equal_nan=True)


def test_packed_sequences_refuse_what_they_cannot_be():
    rnn = ct.nn.utils.rnn
    with pytest.raises(RuntimeError, match="must be sorted"):
        rnn.pack_padded_sequence(ct.ones(3, 2, 1), [1, 3])
    with pytest.raises(ValueError, match="lengths must be positive"):
        rnn.pack_padded_sequence(ct.ones(3, 2, 1), [3, 0])
    with pytest.raises(ValueError, match="must have 2 elements, got 1"):
        rnn.pack_padded_sequence(ct.ones(3, 2, 1), [3])


def test_a_device_for_what_is_made_without_one():
    if ct.cuda.is_available():
        with ct.device("cuda"):
            assert ct.zeros(2).is_cuda and ct.tensor([1.0]).is_cuda and ct.nn.Linear(2, 1).weight.is_cuda
            assert ct.zeros(2, device="cpu").is_cpu and ct.zeros_like(ct.zeros(2, device="cpu")).is_cpu
    else:
        # That it was asked for is what can be seen without a GPU.
        for make in (lambda: ct.zeros(2), lambda: ct.tensor([1.0]), lambda: ct.randn(2), lambda: ct.nn.Linear(2, 1), lambda: ct.arange(3)):
            with pytest.raises(ValueError, match="cuda:0"), ct.device("cuda"):
                make()
        with ct.device("cuda"):
            assert ct.zeros(2, device="cpu").is_cpu and ct.zeros_like(ct.zeros(2, device="cpu")).is_cpu
            with ct.device("cpu"):
                assert ct.zeros(2).is_cpu
            assert ct.get_default_device() == ct.device("cuda")
    assert ct.get_default_device() == ct.device("cpu") and ct.zeros(2).is_cpu


def test_distributions_refuse_what_is_no_parameter():
    d = ct.distributions
    with pytest.raises(ValueError, match="Normal: scale must be positive"):
        d.Normal(0.0, -1.0)
    with pytest.raises(ValueError, match="either probs or logits"):
        d.Categorical()
    with pytest.raises(NotImplementedError, match="use sample and log_prob"):
        d.Gamma(1.0, 1.0).rsample()
    with pytest.raises(NotImplementedError, match="Normal and Gamma"):
        d.kl_divergence(d.Normal(0.0, 1.0), d.Gamma(1.0, 1.0))


@pytest.mark.parametrize("name, args", [("Normal", (1.0, 2.0)), ("Uniform", (-1.0, 2.0)), ("Exponential", (2.0,)), ("Laplace", (1.0, 0.5)),
                                        ("Gumbel", (1.0, 0.5)), ("Gamma", (0.5, 2.0)), ("Gamma", (3.0, 1.0)), ("Beta", (0.5, 2.0)),
                                        ("Bernoulli", (0.3,)), ("Geometric", (0.3,)), ("Binomial", (5, 0.3)), ("Poisson", (2.0,)),
                                        ("LogNormal", (0.0, 0.5)), ("HalfNormal", (2.0,))])
def test_draws_have_the_mean_and_the_width_of_their_distribution(name, args):
    ct.manual_seed(0)
    distribution = getattr(ct.distributions, name)(*args)
    drawn = distribution.sample((20000,))
    error = distribution.stddev.item() / 20000**0.5
    assert abs(drawn.mean().item() - distribution.mean.item()) < 5 * error
    np.testing.assert_allclose(drawn.std().item(), distribution.stddev.item(), rtol=0.05)
