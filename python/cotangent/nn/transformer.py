"""Attention and transformers: they have several inputs, which the crate's list of layers does not describe."""

from __future__ import annotations

import copy
import math

from .. import _cotangent as _c
from .containers import ModuleList
from .layers import CLASSES, _first_dtype
from .module import Module
from .parameter import Parameter

_ops = _c._functions
Linear, LayerNorm, Dropout = CLASSES["Linear"], CLASSES["LayerNorm"], CLASSES["Dropout"]


def _additive(mask, dtype):
    """Converts a bool mask to an additive one: -inf where it is true, 0 elsewhere."""
    if mask is None or mask.dtype != _c.bool:
        return mask
    return _ops["zeros"](mask.shape, dtype=dtype, device=mask.device).masked_fill(mask, -math.inf)


class MultiheadAttention(Module):
    """Multi-head attention: each head projects the queries, keys and values, and attends to all keys."""

    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=True, add_bias_kv=False, add_zero_attn=False, kdim=None,
                 vdim=None, batch_first=False, device=None, dtype=None):
        super().__init__()
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.add_zero_attn = add_zero_attn
        self.kdim, self.vdim = embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim
        _, first, _ = _c._build_layer("MultiheadAttention", {
            "embed_dim": embed_dim, "num_heads": num_heads, "dropout": dropout, "bias": bias, "add_bias_kv": add_bias_kv,
            "add_zero_attn": add_zero_attn, "kdim": kdim, "vdim": vdim, "batch_first": batch_first})
        self.head_dim = embed_dim // num_heads
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_bias", "bias_k", "bias_v"):
            self.register_parameter(name, Parameter(first[name]) if name in first else None)
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias)
        self.out_proj.weight = Parameter(first["out_proj.weight"])
        if bias:
            self.out_proj.bias = Parameter(first["out_proj.bias"])
        self.to(device=device, dtype=_first_dtype() if dtype is None else dtype)

    def _projected(self, query, key, value):
        bias = self.in_proj_bias
        biases = (None,) * 3 if bias is None else bias.chunk(3)
        weights = self.in_proj_weight.chunk(3) if self.in_proj_weight is not None else (
            self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        return [_ops["linear"](x, w, b) for x, w, b in zip((query, key, value), weights, biases)]

    def forward(self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None,
                average_attn_weights=True, is_causal=False):
        if is_causal and attn_mask is None:
            raise RuntimeError("MultiheadAttention: attn_mask must be given with is_causal, got None")
        single = query.ndim == 2
        if single:
            query, key, value = query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0)
        elif not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        q, k, v = self._projected(query, key, value)
        batch, length, _ = q.shape
        mask = _additive(attn_mask, q.dtype)
        if mask is not None and mask.ndim == 3:
            mask = mask.reshape(-1, self.num_heads, *mask.shape[1:])
        padding = _additive(key_padding_mask, q.dtype)
        if padding is not None:
            padding = padding.reshape(batch, 1, 1, -1)
            mask = padding if mask is None else mask + padding
        extra = 0
        if self.bias_k is not None:
            k = _ops["cat"]([k, self.bias_k.expand(batch, 1, self.embed_dim)], 1)
            v = _ops["cat"]([v, self.bias_v.expand(batch, 1, self.embed_dim)], 1)
            extra += 1
        if self.add_zero_attn:
            zero = _ops["zeros"]((batch, 1, self.embed_dim), dtype=k.dtype, device=k.device)
            k, v = _ops["cat"]([k, zero], 1), _ops["cat"]([v, zero], 1)
            extra += 1
        if mask is not None and extra:
            mask = _ops["pad"](mask, (0, extra))
        q, k, v = (x.reshape(batch, x.shape[1], self.num_heads, self.head_dim).transpose(1, 2) for x in (q, k, v))
        drop = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)
            weights = _ops["softmax"](scores if mask is None else scores + mask, -1)
            weights = _ops["dropout"](weights, drop, True) if drop else weights
            heads = weights @ v
        else:
            heads = _ops["scaled_dot_product_attention"](q, k, v, attn_mask=mask, dropout_p=drop)
        result = self.out_proj(heads.transpose(1, 2).reshape(batch, length, self.embed_dim))
        if weights is not None and average_attn_weights:
            weights = weights.mean(dim=1)
        if single:
            result, weights = result.squeeze(0), None if weights is None else weights.squeeze(0)
        elif not self.batch_first:
            result = result.transpose(0, 1)
        return result, weights


def _activation(activation):
    if callable(activation):
        return activation
    if activation not in ("relu", "gelu"):
        raise RuntimeError(f"activation must be relu, gelu or a function, got {activation}")
    return _ops[activation]


class _Block(Module):
    """Base class of encoder and decoder layers."""

    def _make(self, d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias, count):
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first)
        if count == 3:
            self.multihead_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first)
        self.linear1 = Linear(d_model, dim_feedforward, bias)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias)
        self.norm_first = norm_first
        for at in range(1, count + 1):
            setattr(self, f"norm{at}", LayerNorm(d_model, eps=layer_norm_eps, bias=bias))
        for at in range(1, count + 1):
            setattr(self, f"dropout{at}", Dropout(dropout))
        # Stored by name, so that it can be pickled.
        self.activation = activation
        _activation(activation)

    def _feed_forward(self, x):
        return self.linear2(self.dropout(_activation(self.activation)(self.linear1(x))))

    def _residual(self, x, at, part):
        norm, drop = getattr(self, f"norm{at}"), getattr(self, f"dropout{at}")
        return x + drop(part(norm(x))) if self.norm_first else norm(x + drop(part(x)))


class TransformerEncoderLayer(_Block):
    """An encoder layer: self-attention and a feed-forward network, each with a residual connection and a layer norm."""

    def __init__(self, d_model, nhead, dim_feedforward=2048, dropout=0.1, activation="relu", layer_norm_eps=1e-5,
                 batch_first=False, norm_first=False, bias=True, device=None, dtype=None):
        super().__init__()
        self._make(d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias, 2)
        self.to(device=device, dtype=dtype)

    def forward(self, src, src_mask=None, src_key_padding_mask=None, is_causal=False):
        attend = lambda x: self.self_attn(x, x, x, attn_mask=src_mask, key_padding_mask=src_key_padding_mask, need_weights=False,
                                          is_causal=is_causal)[0]
        return self._residual(self._residual(src, 1, attend), 2, self._feed_forward)


class TransformerDecoderLayer(_Block):
    """A decoder layer: self-attention, attention to the encoder's output, and a feed-forward network."""

    def __init__(self, d_model, nhead, dim_feedforward=2048, dropout=0.1, activation="relu", layer_norm_eps=1e-5,
                 batch_first=False, norm_first=False, bias=True, device=None, dtype=None):
        super().__init__()
        self._make(d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias, 3)
        self.to(device=device, dtype=dtype)

    def forward(self, tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None,
                memory_key_padding_mask=None, tgt_is_causal=False, memory_is_causal=False):
        own = lambda x: self.self_attn(x, x, x, attn_mask=tgt_mask, key_padding_mask=tgt_key_padding_mask, need_weights=False,
                                       is_causal=tgt_is_causal)[0]
        other = lambda x: self.multihead_attn(x, memory, memory, attn_mask=memory_mask,
                                              key_padding_mask=memory_key_padding_mask, need_weights=False,
                                              is_causal=memory_is_causal)[0]
        return self._residual(self._residual(self._residual(tgt, 1, own), 2, other), 3, self._feed_forward)


class TransformerEncoder(Module):
    """A stack of encoder layers: copies of ``encoder_layer``, each with its own parameters."""

    def __init__(self, encoder_layer, num_layers, norm=None, enable_nested_tensor=True, mask_check=True):
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(encoder_layer) for _ in range(num_layers)])
        self.num_layers, self.norm = num_layers, norm

    def forward(self, src, mask=None, src_key_padding_mask=None, is_causal=None):
        for layer in self.layers:
            src = layer(src, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=bool(is_causal))
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """A stack of decoder layers: copies of ``decoder_layer``, each with its own parameters."""

    def __init__(self, decoder_layer, num_layers, norm=None):
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(decoder_layer) for _ in range(num_layers)])
        self.num_layers, self.norm = num_layers, norm

    def forward(self, tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None,
                memory_key_padding_mask=None, tgt_is_causal=None, memory_is_causal=False):
        for layer in self.layers:
            tgt = layer(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask,
                        bool(tgt_is_causal), memory_is_causal)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """A transformer: an encoder and a decoder."""

    def __init__(self, d_model=512, nhead=8, num_encoder_layers=6, num_decoder_layers=6, dim_feedforward=2048, dropout=0.1,
                 activation="relu", custom_encoder=None, custom_decoder=None, layer_norm_eps=1e-5, batch_first=False,
                 norm_first=False, bias=True, device=None, dtype=None):
        super().__init__()
        own = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
        norm = lambda: LayerNorm(d_model, eps=layer_norm_eps, bias=bias)
        self.encoder = custom_encoder or TransformerEncoder(TransformerEncoderLayer(*own), num_encoder_layers, norm())
        self.decoder = custom_decoder or TransformerDecoder(TransformerDecoderLayer(*own), num_decoder_layers, norm())
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        from . import init

        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)
        self.to(device=device, dtype=dtype)

    def forward(self, src, tgt, src_mask=None, tgt_mask=None, memory_mask=None, src_key_padding_mask=None,
                tgt_key_padding_mask=None, memory_key_padding_mask=None, src_is_causal=None, tgt_is_causal=None,
                memory_is_causal=False):
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        return self.decoder(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask,
                            tgt_is_causal, memory_is_causal)

    @staticmethod
    def generate_square_subsequent_mask(sz, device=None, dtype=None):
        """Returns a causal mask: each position attends to itself and to earlier positions."""
        full = _ops["full"]((sz, sz), -math.inf, dtype=dtype or _c.get_default_dtype(), device=device)
        return full.triu(1)
