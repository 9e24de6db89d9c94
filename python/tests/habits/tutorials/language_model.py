import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn import TransformerEncoder, TransformerEncoderLayer


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, dropout=0.1, max_len=50):
        super().__init__()
        self.dropout = nn.Dropout(p=dropout)
        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, 1, d_model)
        pe[:, 0, 0::2] = torch.sin(position * div_term)
        pe[:, 0, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe)

    def forward(self, x):
        return self.dropout(x + self.pe[:x.size(0)])


class Transformer(nn.Module):
    def __init__(self, ntoken, d_model, nhead, d_hid, nlayers):
        super().__init__()
        self.pos_encoder = PositionalEncoding(d_model, 0.0)
        self.transformer_encoder = TransformerEncoder(TransformerEncoderLayer(d_model, nhead, d_hid, 0.0), nlayers)
        self.embedding, self.d_model, self.linear = nn.Embedding(ntoken, d_model), d_model, nn.Linear(d_model, ntoken)
        self.init_weights()

    def init_weights(self):
        self.embedding.weight.data.uniform_(-0.1, 0.1)
        self.linear.bias.data.zero_()

    def forward(self, src, src_mask=None):
        src = self.pos_encoder(self.embedding(src) * math.sqrt(self.d_model))
        if src_mask is None:
            src_mask = nn.Transformer.generate_square_subsequent_mask(len(src))
        return self.linear(self.transformer_encoder(src, src_mask))


class RNNModel(nn.Module):
    def __init__(self, ntoken, ninp, nhid, nlayers, tie_weights=False):
        super().__init__()
        self.drop, self.encoder = nn.Dropout(0.0), nn.Embedding(ntoken, ninp)
        self.rnn, self.decoder = nn.LSTM(ninp, nhid, nlayers, dropout=0.0), nn.Linear(nhid, ntoken)
        if tie_weights:
            self.decoder.weight = self.encoder.weight
        self.nhid, self.nlayers = nhid, nlayers

    def forward(self, input, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(input)), hidden)
        decoded = self.decoder(self.drop(output))
        return F.log_softmax(decoded.view(-1, decoded.size(2)), dim=1), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return weight.new_zeros(self.nlayers, bsz, self.nhid), weight.new_zeros(self.nlayers, bsz, self.nhid)


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    return data.narrow(0, 0, nbatch * bsz).view(bsz, -1).t().contiguous()


def get_batch(source, i, bptt=3):
    seq_len = min(bptt, len(source) - 1 - i)
    return source[i:i + seq_len], source[i + 1:i + 1 + seq_len].reshape(-1)


def repackage_hidden(h):
    return h.detach() if isinstance(h, torch.Tensor) else tuple(repackage_hidden(v) for v in h)


def fill(model):
    for k, p in enumerate(model.parameters()):
        p.data.copy_(torch.sin(torch.arange(p.numel()) * 0.7 + k).reshape(p.shape) * 0.3 + (p.dim() == 1) * 0.5)


data = batchify((torch.arange(20) ** 2) % 7, 2)
rnn, lines = RNNModel(7, 6, 6, 2, tie_weights=True), []
fill(rnn)
hidden = rnn.init_hidden(2)
for batch, i in enumerate(range(0, data.size(0) - 1, 3)):
    inputs, targets = get_batch(data, i)
    rnn.zero_grad()
    hidden = repackage_hidden(hidden)
    output, hidden = rnn(inputs, hidden)
    loss = nn.NLLLoss()(output, targets)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(rnn.parameters(), 0.25)
    for p in rnn.parameters():
        p.data.add_(p.grad, alpha=-0.5)
    lines.append("| {:3d} batches | loss {:5.2f} | ppl {:8.2f}".format(batch, loss.item(), math.exp(loss.item())))
model = Transformer(7, 8, 2, 16, 2)
fill(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1.0, gamma=0.95)
losses = []
for _ in range(2):
    inputs, targets = get_batch(data, 0)
    loss = nn.CrossEntropyLoss()(model(inputs).view(-1, 7), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())
model.eval()
with torch.no_grad():
    greedy = model(data[:4]).argmax(-1)
out = [data, lines, losses, scheduler.get_last_lr(), greedy.shape, len(list(rnn.parameters())), hidden[0].detach()]
