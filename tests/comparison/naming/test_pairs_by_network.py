"""Dumps of programs, made by hand, whose tensors pair by where they stand in the network."""

import numpy as np
import pytest

from sgsdump import Dump, Record, Tensor, compare
from sgsdump.comparison.dataflow import first_difference
from sgsdump.comparison.naming.network import kind_of
from sgsdump.comparison.naming.pairs_by_network import MODULE, PLACE
from sgsdump.dumps.dump import Operator
from sgsdump.dumps.onnx_network import module_of


class Program:
    """A run that is computed here: ``op`` is an operator with its inputs and its output, as a hook dumps them."""

    def __init__(self, format="atb_tree", inputs=True):
        self.records, self.operators, self.format, self.inputs = [], {}, format, inputs

    def op(self, name, kind, module, made, *read, is_module=False):
        index = len(self.operators)
        self.operators[index] = Operator(module, kind, is_module)
        for slot, value in enumerate(read if self.inputs else ()):
            self.records.append(Record("in", slot, index, kind, Tensor.of(f"{name}/input.{slot}", value)))
        self.records.append(Record("out", 0, index, kind, Tensor.of(f"{name}/output.0", made)))
        return made

    def dump(self):
        return Dump(self.records, self.format, network=lambda: self.operators)


def values(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape or (2, 3)).astype(np.float32)


def block(program, number, x, module="block", scale=1.0):
    """A product, a Relu and an addition, which read one another's values."""
    y = program.op(f"{number}_mm", "aten.mm", f"{module}.fc", x * np.float32(0.5 * scale), x)
    y = program.op(f"{number + 1}_relu", "aten.relu", module, np.maximum(y, 0), y)
    return program.op(f"{number + 2}_add", "aten.add", module, y + x, y, x)


def paired(comparison):
    return {row.name: (row.sample_name, row.paired) for row in comparison}


def test_an_operator_that_only_one_version_has_moves_none_of_the_others():
    old, new = Program(), Program()
    block(old, 0, values(0))
    x = new.op("0_neg", "aten.neg", "block", -values(0), values(0))
    block(new, 1, -x)
    comparison = compare(new.dump(), old.dump())
    assert paired(comparison)["0_mm/output.0"] == ("1_mm/output.0", MODULE)
    assert paired(comparison)["2_add/input.1"] == ("3_add/input.1", MODULE)
    assert len(comparison) == len(old.records) and not any(row.error for row in comparison)
    (reason,) = {one.reason for one in comparison.only_in_sample}
    assert reason == "the benchmark has no neg at this place of the network (block)"
    # Names alone would hold an operator against the one before it.
    assert {row.module for row in comparison} == {"block", "block.fc"}


def test_of_two_operators_of_a_kind_the_one_that_was_called_alike_is_the_partner():
    """Attention as an operator of its own, in place of two products between two transpositions."""

    def run(fused, last=(1, 2)):
        program, x = Program(), values(0, 4, 4, 4)
        keys = x.swapaxes(-1, -2)
        made = (x @ keys) @ x
        if fused:
            program.op("0_sdpa", "aten.sdpa", "attn", made, x)
        else:
            program.op("0_turn", "aten.transpose", "attn", keys, x)
            scores = program.op("1_mm", "aten.matmul", "attn", x @ keys, x, keys)
            program.op("2_mm", "aten.matmul", "attn", made, scores, x)
            program.operators[0] = Operator("attn", "aten.transpose", arguments={"dim0": "-1", "dim1": "-2"})
        out = program.op("turn", "aten.transpose", "attn", made.swapaxes(*last), made)
        arguments = {"dim0": str(last[0]), "dim1": str(last[1])}
        program.operators[max(program.operators)] = Operator("attn", "aten.transpose", arguments=arguments)
        program.op("exp", "aten.exp", "attn", np.exp(out), out)
        return program.dump()

    for sides in ((True, False), (False, True)):
        comparison = compare(*map(run, sides))
        assert paired(comparison)["turn/output.0"] == ("turn/output.0", MODULE)
        assert not comparison.causes and not any(row.error for row in comparison)
    # An argument that differs is found where no operator was called as this one was.
    (finding, *_) = compare(run(True, last=(0, 1)), run(True)).causes
    assert (finding.kind, finding.layer) == ("argument", "turn/output.0")


def test_equal_names_pair_by_name_alone():
    one, other = Program(), Program()
    block(one, 0, values(0))
    block(other, 0, values(0), scale=2.0)
    comparison = compare(one.dump(), other.dump())
    assert {row.paired for row in comparison} == {"name"} and comparison["0_mm/output.0"].module == "block.fc"
    first = first_difference(comparison)
    assert first.where == "0_mm/output.0 (aten.mm) in block.fc" and str(first).endswith(
        "); the operator's own error is 0.5"
    )


def test_without_modules_what_computes_the_same_of_the_same_is_paired():
    """The branches run the other way round in the program that knows no modules."""
    eager, graph = Program(), Program("ascend_dir")
    x = values(0)
    left = eager.op("left", "aten.tanh", "left", np.tanh(x), x)
    right = eager.op("right", "aten.tanh", "right", np.tanh(left), left)
    eager.op("sum", "aten.add", "", left + right, left, right)
    mine = graph.op("tanh", "Tanh", "", np.tanh(x), x)
    other = graph.op("tanh_1", "Tanh", "", np.tanh(mine), mine)
    graph.op("add", "Add", "", mine + other, mine, other)
    comparison = compare(graph.dump(), eager.dump())
    assert paired(comparison)["left/output.0"] == ("tanh/output.0", PLACE)
    assert paired(comparison)["right/output.0"] == ("tanh_1/output.0", PLACE)
    assert paired(comparison)["sum/output.0"] == ("add/output.0", PLACE)
    assert not comparison.only_in_sample and not any(row.error for row in comparison)


def test_a_parallel_branch_is_told_by_what_it_reads():
    """Two operators of one kind in another order: the flow pairs what order alone would mix up."""
    eager, graph = Program(), Program("ascend_dir")
    for program, order in ((eager, "ab"), (graph, "ba")):
        x, y = values(1), values(2)
        first = program.op("exp", "exp", "m", np.exp(x), x)
        second = program.op("sin", "sin", "m", np.sin(y), y)
        read = {"a": first, "b": second}
        for name in order:
            program.op(f"tanh_{name}", "tanh", "m" if program is eager else "", np.tanh(read[name]), read[name])
    comparison = compare(graph.dump(), eager.dump())
    assert paired(comparison)["tanh_a/output.0"][0] == "tanh_a/output.0"
    assert not any(row.error for row in comparison)


def test_a_square_weight_may_lie_transposed_in_another_library():
    """``aten.addmm`` takes what ``Linear`` has as its weight the other way round."""
    eager, graph = Program(), Program("ascend_dir")
    x, weight, bias = values(1, 2, 4), values(2, 4, 4), values(3, 4)
    eager.op("addmm", "aten.addmm", "fc", x @ weight.T + bias, bias, x, np.ascontiguousarray(weight.T))
    graph.op("linear", "Linear", "fc", x @ weight.T + bias, x, weight, bias)
    comparison = compare(graph.dump(), eager.dump())
    assert set(paired(comparison)) == {"addmm/input.0", "addmm/input.1", "addmm/output.0"}
    assert not any(row.error for row in comparison)


def test_modules_are_held_against_modules_though_one_dump_has_operators_inside():
    """A module reads what it is called with, its operator the weight too."""
    inside, modules = Program(), Program("torch_tree")
    tokens, weight = np.arange(3), values(1, 3, 3)
    inside.op("0_embed", "Embedding", "embed", weight[tokens], tokens, is_module=True)
    inside.op("0_embed/0_embedding", "aten.embedding", "embed", weight[tokens], weight, tokens)
    modules.op("root.embed", "Embedding", "embed", weight[tokens], tokens, is_module=True)
    for sample, benchmark in ((inside, modules), (modules, inside)):
        comparison = compare(sample.dump(), benchmark.dump())
        names = {frozenset(row.sample_name.split("/")[:1] + row.name.split("/")[:1]) for row in comparison}
        assert len(comparison) == 2 and names == {frozenset(("0_embed", "root.embed"))}
    # Where there is the operator alone, it stands for the module.
    alone = Program()
    alone.op("0_embedding", "aten.embedding", "embed", weight[tokens], weight, tokens)
    comparison = compare(alone.dump(), modules.dump())
    assert paired(comparison) == {
        "root.embed/input.0": ("0_embedding/input.1", MODULE),
        "root.embed/output.0": ("0_embedding/output.0", MODULE),
    }


def test_modules_that_another_exporter_renamed_pair_as_the_operators_inside_do():
    def run(path, tail):
        program, x = Program(), values(0)
        program.op(f"0_{tail}", "Block", path, np.tanh(x) * 2, x, is_module=True)
        y = program.op(f"0_{tail}/0_tanh", "aten.tanh", path, np.tanh(x), x)
        program.op(f"0_{tail}/1_add", "aten.add", path, y + y, y, y)
        return program.dump()

    comparison = compare(run("encoder", "encoder"), run("stem", "stem"))
    assert paired(comparison)["0_stem/output.0"] == ("0_encoder/output.0", PLACE)
    assert not comparison.only_in_sample and not any(row.error for row in comparison)


def onnx_dump(nodes, flow=True):
    """``nodes``: name, type, names read, name made, value, perhaps attributes."""
    records = [
        Record("out", 0, index, name, Tensor.of(made, value))
        for index, (name, _, _, made, value, *_) in enumerate(nodes)
    ]
    from sgsdump.dumps.onnx_network import of_nodes

    told = [
        (name, kind, list(read), [made], "", *(attributes or [{}])) for name, kind, read, made, _, *attributes in nodes
    ]
    return Dump(records, "sigmastar_bin", network=(lambda: of_nodes(records, told)) if flow else dict)


def folded(weights_changed=False):
    """A torch net with a normalisation, and the ONNX model in which the convolution has it."""
    torch_run = Program()
    x = values(0, 1, 4, 3, 3)
    conv = torch_run.op("0_c", "aten.convolution", "layer.0.conv", x * 2, x)
    norm = torch_run.op("1_n", "aten.native_batch_norm", "layer.0.bn", conv + 3, conv)
    relu = torch_run.op("2_r", "aten.relu", "layer.0", np.maximum(norm, 0), norm)
    torch_run.op("3_a", "aten.add", "layer.0", relu + x, relu, x)
    conv = x * 2 + 3 + np.float32(0.1 if weights_changed else 0)
    relu = np.maximum(conv, 0)
    nodes = [
        ("/layer/layer.0/conv/Conv", "Conv", ["x"], "/layer/layer.0/conv/Conv_output_0", conv),
        ("/layer/layer.0/Relu", "Relu", ["/layer/layer.0/conv/Conv_output_0"], "/layer/layer.0/Relu_output_0", relu),
        ("/layer/layer.0/Add", "Add", ["/layer/layer.0/Relu_output_0", "x"], "31", relu + x),
    ]
    return torch_run.dump(), nodes


@pytest.mark.parametrize("flow", [True, False])
def test_a_folded_normalisation_is_compared_behind_it(flow):
    torch_run, nodes = folded()
    comparison = compare(torch_run, onnx_dump(nodes, flow))
    row = comparison["/layer/layer.0/conv/Conv_output_0"]
    assert row.sample_name == "1_n/output.0" and row.module == "layer.0.conv" and row.error == 0
    assert row.note.startswith("compared after aten.native_batch_norm of the sample")
    assert [row.error for row in comparison] == [0, 0, 0]
    swapped = compare(onnx_dump(nodes, flow), torch_run)
    assert paired(swapped)["1_n/output.0"][0] == "/layer/layer.0/conv/Conv_output_0"


@pytest.mark.parametrize("flow", [True, False])
def test_the_first_operator_of_two_libraries_that_differs_has_its_inputs_errors(flow):
    torch_run, nodes = folded(weights_changed=True)
    comparison = compare(torch_run, onnx_dump(nodes, flow))
    first = first_difference(comparison, beyond_rounding=True)
    assert first.output.name == "/layer/layer.0/conv/Conv_output_0" and first.inputs == ()
    relu = comparison["/layer/layer.0/Relu_output_0"]
    assert relu.sources == ("/layer/layer.0/conv/Conv_output_0",) and relu.by_flow
    assert comparison["31"].sources == ("/layer/layer.0/Relu_output_0",)
    assert relu.rise == relu.error - first.output.error


def test_a_product_with_a_bias_of_its_own_operator_is_compared_behind_it():
    torch_run = Program()
    x = values(0)
    torch_run.op("0_addmm", "aten.addmm", "fc", x * 3 + 1, x)
    nodes = [
        ("/fc/MatMul", "MatMul", ["x"], "/fc/MatMul_output_0", x * 3),
        ("/fc/Add", "Add", ["bias", "/fc/MatMul_output_0"], "y", x * 3 + 1),
    ]
    (row,) = compare(torch_run.dump(), onnx_dump(nodes))
    assert (row.name, row.sample_name, row.error) == ("y", "0_addmm/output.0", 0)


def test_an_addition_that_one_version_alone_has_is_not_folded_into_a_product_called_alike():
    """Both run the product as one operator, so neither has the bias inside: the addition is one more operator."""
    old, new, x = Program(), Program(), values(0)
    product = old.op("0_mm", "aten.mm", "fc", x * 3, x)
    old.op("1_relu", "aten.relu", "", np.maximum(product, 0), product)
    product = new.op("a_mm", "aten.mm", "fc", x * 3, x)
    more = new.op("b_add", "aten.add", "fc", product + 1, product)
    new.op("c_relu", "aten.relu", "", np.maximum(more, 0), more)
    for sides, names in (((new, old), ("0_mm", "a_mm")), ((old, new), ("a_mm", "0_mm"))):
        row = compare(*(side.dump() for side in sides))[f"{names[0]}/output.0"]
        assert (row.sample_name, row.error, row.note) == (f"{names[1]}/output.0", 0, "")


class OnnxNodes(list):
    """Nodes as torch.onnx names them; a value's name is its node's."""

    def op(self, path, kind, value, *read, **attributes):
        count = sum(name.partition("_")[0] == f"/{path}/{kind}" for name, *_ in self)
        name = f"/{path}/{kind}" + (f"_{count}" if count else "")
        self.append((name, kind, list(read), f"{name}_output_0", value, attributes))
        return f"{name}_output_0"


def feed_forward(torch_run, nodes, scale=1.0, modules=False, approximate=False):
    """A Linear and a GELU: modules, or operators that run in them, and nine or more nodes of ONNX."""
    x = values(0, 1, 4, 6)
    product = x * 3
    line = product + 1
    curve = (np.tanh(line) if approximate else line * line).astype(np.float32)
    gelu = line * (curve + 1) * 0.5
    if modules:
        torch_run.op("fc", "Linear", "fc", line * np.float32(scale), x, is_module=True)
        torch_run.op("act", "GELUActivation", "act", gelu, line, is_module=True)
    else:
        torch_run.op("0_addmm", "aten.addmm", "fc", line * np.float32(scale), x)
        torch_run.op("1_gelu", "aten.gelu", "act", gelu, line)
    made = nodes.op("fc", "MatMul", product, "x")
    made = nodes.op("fc", "Add", line, "bias", made)
    root = nodes.op("act", "Div", line / 2, made)
    one = nodes.op("act", "Constant", np.float32(1))
    curved = nodes.op("act", "Tanh" if approximate else "Erf", curve, root)
    more = nodes.op("act", "Add", curve + 1, curved, one)
    times = nodes.op("act", "Mul", line * (curve + 1), made, more)
    return nodes.op("act", "Mul", gelu, times, "half"), made


@pytest.mark.parametrize("modules", [True, False])
@pytest.mark.parametrize("approximate", [True, False])
def test_a_linear_and_a_gelu_of_several_nodes_pair_at_their_ends(modules, approximate):
    torch_run, nodes = Program(), OnnxNodes()
    gelu, line = feed_forward(torch_run, nodes, modules=modules, approximate=approximate)
    comparison = compare(torch_run.dump(), onnx_dump(nodes))
    names = ("fc/output.0", "act/output.0") if modules else ("0_addmm/output.0", "1_gelu/output.0")
    assert paired(comparison) == {line: (names[0], MODULE), gelu: (names[1], MODULE)}
    assert [row.error for row in comparison] == [0, 0]
    swapped = compare(onnx_dump(nodes), torch_run.dump())
    assert paired(swapped) == {names[0]: (line, MODULE), names[1]: (gelu, MODULE)}


def recurrent(torch_run, nodes, scale=1.0):
    """A Linear, and a module whose operators are of other kinds on the two sides; one of them is an addition."""
    x = values(0, 2, 3)
    y = torch_run.op("0_addmm", "aten.addmm", "fc", x * 3 + 1, x)
    z = torch_run.op("1_add_", "aten.add_", "gru", y + x, y, x)
    made = torch_run.op("2_tanh", "aten.tanh", "gru", np.tanh(z), z)
    torch_run.op("gru", "GRU", "gru", made, y, is_module=True)
    torch_run.op("4_addmm", "aten.addmm", "head", made * 5, made)
    line = nodes.op("fc", "Add", y, "bias", nodes.op("fc", "MatMul", x * 3, "x"))
    step = nodes.op("gru", "GRU", (made * np.float32(scale))[None], line)
    whole = nodes.op("gru", "Squeeze", made * np.float32(scale), step)
    return line, whole, nodes.op("head", "MatMul", made * np.float32(5 * scale), whole)


def test_a_module_whose_operators_are_others_altogether_pairs_at_its_end():
    torch_run, nodes = Program(), OnnxNodes()
    line, whole, head = recurrent(torch_run, nodes, scale=1.5)
    comparison = compare(onnx_dump(nodes), torch_run.dump())
    # An Add of one module is not an add_ of another.
    assert {name: sample for name, (sample, _) in paired(comparison).items()} == {
        **{"0_addmm/output.0": line, "gru/output.0": whole, "4_addmm/output.0": head}
    }
    assert comparison["0_addmm/output.0"].error == 0
    assert first_difference(comparison, beyond_rounding=True).output.name == "gru/output.0"
    assert [finding.layer for finding in comparison.causes] == ["gru/output.0"]
    assert comparison["gru/output.0"].sources == ("0_addmm/output.0",)
    swapped = compare(torch_run.dump(), onnx_dump(nodes))
    assert paired(swapped)[whole] == ("gru/output.0", MODULE)


def test_what_one_library_alone_reshapes_at_the_end_is_not_missing():
    for kind, missing in (("aten.view", ()), ("aten.transpose", ("1_last/output.0",))):
        torch_run, nodes = Program(), OnnxNodes()
        x = values(0, 2, 3)
        y = torch_run.op("0_addmm", "aten.addmm", "fc", x * 3, x)
        torch_run.op("1_last", kind, "fc", y.reshape(1, 2, 3), y)
        nodes.op("fc", "MatMul", y, "x")
        assert compare(onnx_dump(nodes), torch_run.dump()).completeness.missing_outputs == missing


def test_an_error_in_a_linear_is_its_own():
    torch_run, nodes = Program(), OnnxNodes()
    _, line = feed_forward(torch_run, nodes, scale=1.5, modules=True)
    comparison = compare(torch_run.dump(), onnx_dump(nodes))
    assert first_difference(comparison, beyond_rounding=True).output.name == line
    assert comparison[line].error == pytest.approx(0.5)


def test_a_module_that_ran_twice_or_ends_twice_has_no_end():
    torch_run, nodes = Program(), OnnxNodes()
    x = values(0)
    torch_run.op("fc", "Linear", "fc", x, x, is_module=True)
    torch_run.op("fc@1", "Linear", "fc", x * 2, x, is_module=True)
    torch_run.op("two", "Pieces", "two", x, x, is_module=True)
    made = nodes.op("fc", "Neg", x, "x")
    for number in (3, 4):
        nodes.op("", "Abs", x * number, nodes.op("two", "Sin", x * number, made))
    comparison = compare(torch_run.dump(), onnx_dump(nodes))
    assert not paired(comparison)


def attention(torch_run, nodes, perm=(0, 2, 1, 3), scale=1.0):
    """Two heads of one product; torch has one operator where ONNX has four nodes and moves the keys otherwise."""
    x = values(0, 1, 4, 6)
    line = torch_run.op("0_addmm", "aten.addmm", "block.fc", x * 2, x)
    split = torch_run.op("1_view", "aten.view", "block", line.reshape(1, 4, 2, 3), line)
    heads = np.ascontiguousarray(split.transpose(0, 2, 1, 3))
    torch_run.op("2_transpose", "aten.transpose", "block", heads, split)
    torch_run.operators[2] = Operator("block", "aten.transpose", arguments={"dim0": "1", "dim1": "-2"})
    shares = heads @ heads.transpose(0, 1, 3, 2)
    mixed = shares @ heads
    torch_run.op("3_sdpa", "aten.scaled_dot_product_attention", "block", mixed * np.float32(scale), heads)
    torch_run.op("4_neg", "aten.neg", "block.out", -mixed, mixed)
    made = nodes.op("block/fc", "MatMul", x * 2, "x")
    parts = nodes.op("block", "Reshape", split, made)
    turned = np.ascontiguousarray(split.transpose(perm))
    query = nodes.op("block", "Transpose", turned, parts, perm=str(list(perm)))
    keys = nodes.op("block", "Transpose", split.transpose(0, 2, 3, 1), parts, perm="[0, 2, 3, 1]")
    scores = nodes.op("block", "MatMul", shares, query, keys)
    soft = nodes.op("block", "Softmax", shares, scores)
    ended = nodes.op("block", "MatMul", mixed, soft, query)
    nodes.op("block/out", "Neg", -mixed, ended)
    return parts, query, ended


def test_attention_pairs_at_its_end_and_what_moves_values_where_it_moves_the_same():
    torch_run, nodes = Program(), OnnxNodes()
    parts, query, ended = attention(torch_run, nodes)
    found = paired(compare(torch_run.dump(), onnx_dump(nodes)))
    assert found["/block/fc/MatMul_output_0"] == ("0_addmm/output.0", MODULE)
    assert found[parts] == ("1_view/output.0", PLACE)
    assert found[query] == ("2_transpose/output.0", PLACE)
    assert found[ended] == ("3_sdpa/output.0", MODULE)
    assert found["/block/out/Neg_output_0"] == ("4_neg/output.0", MODULE)
    assert len(found) == 5


def test_what_moves_values_otherwise_is_not_paired():
    torch_run, nodes = Program(), OnnxNodes()
    _, query, _ = attention(torch_run, nodes, perm=(0, 2, 3, 1))
    assert query not in paired(compare(torch_run.dump(), onnx_dump(nodes)))


def test_rounding_is_told_from_a_real_difference():
    one, other = Program(), Program()
    x = np.linspace(1, 2, 6, dtype=np.float32)
    for program, off in ((one, 0), (other, 1e-7)):
        y = program.op("0_exp", "exp", "a", (np.exp(x) * (1 + off)).astype(np.float32), x)
        program.op("1_sin", "sin", "b", np.sin(y) + np.float32(off * 1e5), y)
    comparison = compare(one.dump(), other.dump())
    assert first_difference(comparison).output.name == "0_exp/output.0"
    assert first_difference(comparison, beyond_rounding=True).output.name == "1_sin/output.0"


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("aten.convolution Conv2d Conv conv1d ConvTranspose", "conv"),
        ("aten._upsample_nearest_exact2d upsample_bilinear2d Resize", "resize"),
        ("aten.constant_pad_nd Pad", "pad"),
        ("aten.addmm Linear Gemm MatMul aten.bmm", "matmul"),
        ("aten.native_batch_norm BatchNorm2d BatchNormalization", "batch_norm"),
        ("aten._softmax Softmax op_softmax", "softmax"),
        ("aten.add_ Add add", "add"),
        ("aten.max_pool2d_with_indices MaxPool2d MaxPool", "max_pool"),
        ("aten.t Transpose permute", "transpose"),
    ],
)
def test_libraries_words_for_one_operator(words, kind):
    assert {kind_of(word) for word in words.split()} == {kind}


@pytest.mark.parametrize(
    ("node", "module", "kind"),
    [
        ("/layer1/layer1.0/conv1/Conv", "layer1.0.conv1", "Conv"),
        ("/model/layers.0/attn/q_proj/MatMul_1", "model.layers.0.attn.q_proj", "MatMul"),
        ("/Softmax", "", "Softmax"),
        ("Conv_12", "", "Conv"),
    ],
)
def test_modules_in_the_names_of_torch_onnx(node, module, kind):
    assert module_of(node) == (module, kind)


def test_of_two_runs_of_one_model_names_pair_first():
    """The fixed model fuses the first product into the second, whose name stays."""
    names = ["/b/Div_output_0", "/b/Mul_output_0", "/b/Mul_1_output_0", "/c/Mul_output_0"]
    whole = [Record("out", 0, i, "", Tensor.of(name, values(i))) for i, name in enumerate(names)]
    fused = [Record("out", 0, i, "", Tensor.of(names[n], values(n))) for i, n in enumerate((0, 2, 3))]
    comparison = compare(Dump(fused), Dump(whole))
    assert paired(comparison) == {names[n]: (names[n], "name") for n in (0, 2, 3)}
    (left,) = comparison.only_in_benchmark
    assert (left.record.name, left.reason) == (names[1], "no output of this name in the sample")
