"""Proxy Synthesis over modules that know nothing of it: a library's, and home-made."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from pytorch_metric_learning import losses as theirs
from pytorch_metric_learning.reducers import ClassWeightedReducer
from torch import Tensor, nn

import proxysynth as ps
from batches import batch

C, D = 5, 4
SIZE = {"num_classes": C, "embedding_size": D}
MODULES = {
    "NormalizedSoftmaxLoss": lambda: theirs.NormalizedSoftmaxLoss(**SIZE, temperature=0.05),
    "ArcFaceLoss": lambda: theirs.ArcFaceLoss(**SIZE, margin=3, scale=20),
    "CosFaceLoss": lambda: theirs.CosFaceLoss(**SIZE, margin=0.2, scale=20),
    "SphereFaceLoss": lambda: theirs.SphereFaceLoss(**SIZE, margin=2),
    "SubCenterArcFaceLoss": lambda: theirs.SubCenterArcFaceLoss(**SIZE, sub_centers=2, margin=3),
    "SoftTripleLoss": lambda: theirs.SoftTripleLoss(**SIZE, centers_per_class=3),
    "ProxyNCALoss": lambda: theirs.ProxyNCALoss(**SIZE, softmax_scale=3),
    "ProxyAnchorLoss": lambda: theirs.ProxyAnchorLoss(**SIZE),
}
SAME = {
    "NormalizedSoftmaxLoss": ps.NormSoftmax(20.0),
    "ArcFaceLoss": ps.ArcFace(20.0, m2=math.radians(3)),
    "CosFaceLoss": ps.CosFace(20.0, m3=0.2),
    "SoftTripleLoss": ps.SoftTriple(margin=0.0, scaled_margin=0.01, k=3),
    "ProxyNCALoss": ps.SquaredProxyNCA(3.0),
    "ProxyAnchorLoss": ps.ProxyAnchor(),
}


def rows(name: str, module: nn.Module) -> torch.Tensor:
    """The module's proxies as ours: (c, d) or (c, k, d)."""
    (weight,) = module.parameters()
    made = weight if name.startswith("Proxy") else weight.t()
    return made.reshape(C, 3, D) if name == "SoftTripleLoss" else made


def near_own_proxy(name: str, module: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    x, y, _ = batch(ps.NormSoftmax(), n=9, c=C, d=D)
    own = rows(name, module).detach()
    own = own[:, 0] if own.dim() == 3 else own
    # ArcFace's peer bends its curve past pi - margin, which an embedding near its proxy avoids.
    return (x + 3 * own[:C][y]).detach().requires_grad_(), y


@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize("fields", [{}, {"mu": 1.7, "per_pair": True, "duplicates": "merge"}])
def test_matches_our_loss_for_the_same_draw(name: str, fields: dict) -> None:
    module = MODULES[name]().double()
    criterion = ps.synthesize_over(module, **fields)
    x, y = near_own_proxy(name, module)
    ours = ps.ProxySynthesis(SAME[name], **fields)
    torch.manual_seed(3)
    a = criterion(x, y)
    torch.manual_seed(3)
    b = ours(x, y, rows(name, module))
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
    (weight,) = module.parameters()
    for ga, gb in zip(
        torch.autograd.grad(a, (x, weight)), torch.autograd.grad(b, (x, weight)), strict=True
    ):
        torch.testing.assert_close(ga, gb, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", MODULES)
def test_each_module_trains_and_stays_unchanged(name: str) -> None:
    module = MODULES[name]()
    criterion = ps.synthesize_over(module)
    before, attributes = copy.deepcopy(module.state_dict()), set(module.__dict__)
    count = getattr(module, "num_classes", None)
    (weight,) = module.parameters()
    assert [p is weight for p in criterion.parameters()] == [True]
    assert criterion.state_dict().keys() == module.state_dict().keys()

    x, y, _ = batch(ps.NormSoftmax(), n=9, c=C, d=D, dtype=torch.float32)
    value = criterion(x, y)
    value.backward()
    assert value.isfinite()
    assert weight.grad.isfinite().all()
    assert weight.grad.abs().sum() > 0
    assert x.grad.abs().sum() > 0
    assert next(iter(module.parameters())) is weight
    assert isinstance(weight, nn.Parameter)
    assert getattr(module, "num_classes", None) == count
    assert set(module.__dict__) == attributes
    if name == "ProxyNCALoss":
        assert module.proxy_labels.tolist() == list(range(C))
    for key, tensor in module.state_dict().items():
        torch.testing.assert_close(tensor, before[key], rtol=0, atol=0)


@pytest.mark.parametrize("name", MODULES)
def test_evaluation_mode_calls_the_module_unchanged(name: str) -> None:
    module = MODULES[name]()
    criterion = ps.synthesize_over(module)
    x, y, _ = batch(ps.NormSoftmax(), n=9, c=C, d=D, dtype=torch.float32)
    state = torch.get_rng_state()
    assert criterion.eval()(x, y) == module(x, y)
    assert not module.training
    assert torch.equal(torch.get_rng_state(), state)
    criterion.train()
    assert module.training
    assert criterion(x, y) != module(x, y)


def test_checkpoints_of_the_wrapped_module_load() -> None:
    old, new = MODULES["ProxyAnchorLoss"](), MODULES["ProxyAnchorLoss"]()
    ps.synthesize_over(new).load_state_dict(old.state_dict())
    torch.testing.assert_close(new.proxies, old.proxies, rtol=0, atol=0)
    parent = nn.ModuleDict({"head": ps.synthesize_over(new)})
    parent.load_state_dict(nn.ModuleDict({"head": MODULES["ProxyAnchorLoss"]()}).state_dict())
    assert list(parent.state_dict()) == ["head.proxies"]
    with pytest.raises(RuntimeError, match="proxies"):
        ps.synthesize_over(new).load_state_dict({"other": torch.zeros(1)})


class DotProduct(nn.Module):
    """A home-made softmax head: weight (classes, dim) under another name, in a submodule."""

    def __init__(self, classes: int = C, dim: int = D) -> None:
        super().__init__()
        self.head = nn.Module()
        self.head.W = nn.Parameter(torch.randn(classes, dim, dtype=torch.float64))
        self.n_ids = classes
        self.fail = False

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if self.fail:
            raise RuntimeError("broken inside")
        assert self.head.W.shape[0] == self.n_ids
        return F.cross_entropy(x @ self.head.W.t(), y)


def test_custom_dot_product_module() -> None:
    module = DotProduct()
    criterion = ps.synthesize_over(module, class_count="n_ids", normalize=False)
    x, y, _ = batch(ps.Softmax())
    torch.manual_seed(0)
    a = criterion(x, y)
    torch.manual_seed(0)
    b = ps.ProxySynthesis(ps.Softmax())(x, y, module.head.W)
    torch.testing.assert_close(a, b)


@pytest.mark.parametrize("kind", [theirs.SphereFaceLoss, theirs.LargeMarginSoftmaxLoss])
def test_other_integer_tables_are_left_alone(kind: type) -> None:
    """At margin 4 the powers of both are 0, 1, 2, as the labels of three classes are."""
    module = kind(num_classes=3, embedding_size=D, margin=4)
    assert module.n_range.tolist() == [0, 1, 2]
    x, y, _ = batch(ps.NormSoftmax(), n=9, c=3, d=D, dtype=torch.float32)
    value = ps.synthesize_over(module)(x, y)
    value.backward()
    assert value.isfinite()
    assert module.W.grad.isfinite().all()


def test_class_weights_are_rejected() -> None:
    """A reducer of pytorch-metric-learning that keeps a weight for each class."""
    reducer = ClassWeightedReducer(torch.ones(C))
    module = theirs.NormalizedSoftmaxLoss(**SIZE, reducer=reducer)
    x, y, _ = batch(ps.NormSoftmax(), dtype=torch.float32)
    with pytest.raises(ValueError, match=r"ClassWeightedReducer\.weights"):
        ps.synthesize_over(module)(x, y)


def test_an_error_inside_leaves_the_module_unchanged() -> None:
    module = DotProduct()
    criterion = ps.synthesize_over(module, class_count="n_ids")
    module.fail = True
    weight = module.head.W
    x, y, _ = batch(ps.Softmax())
    with pytest.raises(RuntimeError, match="broken inside"):
        criterion(x, y)
    assert module.head.W is weight
    assert module.n_ids == C


def test_batch_of_one_class_calls_the_module_unchanged() -> None:
    module = MODULES["CosFaceLoss"]()
    x, y, _ = batch(ps.NormSoftmax(), c=C, d=D, dtype=torch.float32)
    y = torch.zeros_like(y)
    assert ps.synthesize_over(module)(x, y) == module(x, y)


def test_no_weight_or_several_are_listed() -> None:
    with pytest.raises(ValueError, match="CrossEntropyLoss holds no matrix"):
        ps.synthesize_over(nn.CrossEntropyLoss())

    two = DotProduct()
    two.other = nn.Parameter(torch.zeros(3, 3))
    with pytest.raises(ValueError, match=r"other \(3, 3\), head.W") as caught:
        ps.synthesize_over(two)
    assert "weight=" in str(caught.value)
    assert "class_dim=" in str(caught.value)
    assert ps.synthesize_over(two, weight="head.W").weight == "head.W"
    with pytest.raises(ValueError, match=r"weight='head\.V'"):
        ps.synthesize_over(two, weight="head.V")


def test_only_loss_modules_are_accepted() -> None:
    with pytest.raises(ValueError, match="already synthesizes"):
        ps.synthesize_over(ps.synthesize_over(MODULES["CosFaceLoss"]()))
    for given in (lambda x, y, p: x.sum(), ps.NormSoftmax(), theirs.CosFaceLoss):
        with pytest.raises(ValueError, match=r"nn\.Module .*ProxySynthesis"):
            ps.synthesize_over(given)


def test_square_weight_requires_class_dim() -> None:
    module = theirs.ProxyAnchorLoss(num_classes=4, embedding_size=4)
    x, y, _ = batch(ps.NormSoftmax(), c=4, d=4, dtype=torch.float32)
    with pytest.raises(ValueError, match=r"proxies is \(4, 4\).* class_dim=0"):
        ps.synthesize_over(module)(x, y)
    assert ps.synthesize_over(module, class_dim=0)(x, y).isfinite()
    with pytest.raises(ValueError, match="class_dim must be 0"):
        ps.synthesize_over(module, class_dim=2)


def test_mismatches_are_reported_in_one_sentence() -> None:
    x, y, _ = batch(ps.NormSoftmax(), dtype=torch.float32)
    module = MODULES["CosFaceLoss"]()
    with pytest.raises(ValueError, match=r"9 dimensions .*W is \(4, 5\)"):
        ps.synthesize_over(module)(torch.randn(7, 9), y)
    with pytest.raises(ValueError, match="got list"):
        ps.synthesize_over(module)(x, y.tolist())
    with pytest.raises(ValueError, match="got list"):
        ps.synthesize_over(module)(x.tolist(), y)
    with pytest.raises(ValueError, match="labels must lie in 0..4"):
        ps.synthesize_over(module)(x, y + 3)
    with pytest.raises(ValueError, match="n_ids"):
        ps.synthesize_over(module, class_count="n_ids")(x, y)
    module.num_classes = 3
    with pytest.raises(ValueError, match="does not fit num_classes = 3"):
        ps.synthesize_over(module)(x, y)

    class Biased(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(D, C)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return F.cross_entropy(self.linear(x), y)

    with pytest.raises(ValueError, match=r"Linear\.bias of shape \(5,\)"):
        ps.synthesize_over(Biased(), normalize=False)(x, y)


def test_arguments_for_the_originals_alone_are_rejected() -> None:
    from pytorch_metric_learning.miners import MultiSimilarityMiner

    x, y, _ = batch(ps.NormSoftmax(), n=9, c=C, d=D, dtype=torch.float32)
    criterion = ps.synthesize_over(MODULES["ProxyAnchorLoss"]())
    pairs = MultiSimilarityMiner()(x, y)
    with pytest.raises(ValueError, match="ProxyAnchorLoss.*argument 3"):
        criterion(x, y, pairs)
    with pytest.raises(ValueError, match="indices_tuple"):
        criterion(x, y, indices_tuple=pairs)
    assert criterion(x, y, None).isfinite()
    assert criterion(x, y, indices_tuple=None).isfinite()
    assert criterion.eval()(x, y, pairs).isfinite()


def test_modules_with_other_losses_are_rejected_by_name() -> None:
    proxy, pair = MODULES["ProxyAnchorLoss"](), theirs.TripletMarginLoss()
    with pytest.raises(ValueError, match="MultipleLosses"):
        ps.synthesize_over(theirs.MultipleLosses([proxy, pair]))
    x, y, _ = batch(ps.NormSoftmax(), n=9, c=C, d=D, dtype=torch.float32)
    assert theirs.MultipleLosses([ps.synthesize_over(proxy), pair])(x, y).isfinite()


def test_regularizer_of_the_original_classes_is_rejected_by_name() -> None:
    from pytorch_metric_learning.regularizers import SparseCentersRegularizer

    module = theirs.SoftTripleLoss(
        **SIZE, centers_per_class=3, weight_regularizer=SparseCentersRegularizer(C, 3)
    )
    x, y, _ = batch(ps.NormSoftmax(), n=9, c=C, d=D, dtype=torch.float32)
    with pytest.raises(ValueError, match="SparseCentersRegularizer"):
        ps.synthesize_over(module)(x, y)


@pytest.mark.parametrize(
    ("wrap", "given", "instead"),
    [
        (ps.ProxySynthesis, MODULES["ArcFaceLoss"](), "synthesize_over"),
        (ps.ProxySynthesis, nn.CrossEntropyLoss(), r"Softmax\(\)"),
        (ps.ProxySynthesis, F.cross_entropy, r"Softmax\(\)"),
        (ps.ProxySynthesis, lambda x, y: x.sum(), "three arguments"),
        (ps.ProxySynthesis, ps.NormSoftmax, r"NormSoftmax\(\)"),
        (ps.ProxySynthesis, "softmax", "LOSSES"),
        (ps.InputMixup, nn.CrossEntropyLoss(), r"Softmax\(\)"),
        (ps.InputMixup, "softmax", "LOSSES"),
        (lambda loss: ps.ProxyHead(loss, 3), MODULES["ArcFaceLoss"](), "synthesize_over"),
        (lambda loss: ps.ProxyHead(loss, 3), ps.NormSoftmax, r"NormSoftmax\(\)"),
    ],
)
def test_a_wrapped_loss_must_be_a_function_of_the_proxies(wrap, given, instead) -> None:
    with pytest.raises(ValueError, match=f": [^:]*{instead}[^:]*$") as caught:
        wrap(given)
    assert "\n" not in str(caught.value)


def test_a_module_that_already_synthesizes_is_rejected() -> None:
    with pytest.raises(ValueError, match="already synthesizes"):
        ps.synthesize_over(ps.ProxyHead(ps.ProxySynthesis(ps.NormSoftmax()), 5, 8))


class TwoMatrices(nn.Module):
    """Logits from two matrices with a row for each class, of which only one can be extended."""

    def __init__(self) -> None:
        super().__init__()
        self.W, self.V = nn.Parameter(torch.randn(C, D)), nn.Parameter(torch.randn(C, D))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(x @ self.W.t() + x @ self.V.t(), y)


def test_a_second_matrix_of_the_classes_is_named() -> None:
    x, y, _ = batch(ps.NormSoftmax(), n=9, c=C, d=D, dtype=torch.float32)
    with pytest.raises(ValueError, match="V .* is not extended"):
        ps.synthesize_over(TwoMatrices(), weight="W")(x, y)


def test_other_errors_of_the_module_are_its_own() -> None:
    def fails(*_: Tensor) -> Tensor:
        raise RuntimeError("its own error")

    module = MODULES["ArcFaceLoss"]()
    module.forward = fails
    x, y, _ = batch(ps.NormSoftmax(), n=9, c=C, d=D, dtype=torch.float32)
    with pytest.raises(RuntimeError, match="its own error"):
        ps.synthesize_over(module)(x, y)


def test_a_number_of_classes_in_the_code_is_suspected() -> None:
    class Fixed(DotProduct):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return (F.one_hot(y, C) * (x @ self.head.W.t())).sum()

    x, y, _ = batch(ps.NormSoftmax(), n=9, c=C, d=D)
    with pytest.raises(RuntimeError, match="number of classes"):
        ps.synthesize_over(Fixed(), class_count="n_ids")(x, y)


class OtherCount(nn.Module):
    """Counts its classes under a name of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.W, self.n_cls = nn.Parameter(torch.randn(C, D)), C

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return -(F.one_hot(y, self.n_cls) * F.log_softmax(x @ self.W.t(), dim=1)).sum()


def test_class_count_is_suggested() -> None:
    x, y, _ = batch(ps.NormSoftmax(), n=9, c=C, d=D, dtype=torch.float32)
    with pytest.raises(ValueError, match="class_count='n_cls'"):
        ps.synthesize_over(OtherCount())(x, y)
    assert ps.synthesize_over(OtherCount(), class_count="n_cls")(x, y).isfinite()
