import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim

SOS, EOS, device = 0, 1, torch.device("cuda" if torch.cuda.is_available() else "cpu")
random.seed(0)


class EncoderRNN(nn.Module):
    def __init__(self, input_size, hidden_size, dropout_p=0.1):
        super().__init__()
        self.embedding = nn.Embedding(input_size, hidden_size)
        self.gru = nn.GRU(hidden_size, hidden_size, batch_first=True)
        self.dropout = nn.Dropout(dropout_p)

    def forward(self, input):
        return self.gru(self.dropout(self.embedding(input)))


class BahdanauAttention(nn.Module):
    def __init__(self, hidden_size):
        super().__init__()
        self.Wa, self.Ua, self.Va = nn.Linear(hidden_size, hidden_size), nn.Linear(hidden_size, hidden_size), nn.Linear(hidden_size, 1)

    def forward(self, query, keys):
        scores = self.Va(torch.tanh(self.Wa(query) + self.Ua(keys)))
        weights = F.softmax(scores.squeeze(2).unsqueeze(1), dim=-1)
        return torch.bmm(weights, keys), weights


class AttnDecoderRNN(nn.Module):
    def __init__(self, hidden_size, output_size, length):
        super().__init__()
        self.embedding, self.attention = nn.Embedding(output_size, hidden_size), BahdanauAttention(hidden_size)
        self.gru = nn.GRU(2 * hidden_size, hidden_size, batch_first=True)
        self.out, self.length = nn.Linear(hidden_size, output_size), length

    def forward(self, encoder_outputs, encoder_hidden, target_tensor=None):
        batch_size = encoder_outputs.size(0)
        decoder_input = torch.empty(batch_size, 1, dtype=torch.long, device=device).fill_(SOS)
        hidden, outputs, attentions = encoder_hidden, [], []
        for i in range(self.length):
            output, hidden, weights = self.step(decoder_input, hidden, encoder_outputs)
            outputs.append(output)
            attentions.append(weights)
            if target_tensor is not None:
                decoder_input = target_tensor[:, i].unsqueeze(1)
            else:
                _, topi = output.topk(1)
                decoder_input = topi.squeeze(-1).detach()
        return F.log_softmax(torch.cat(outputs, dim=1), dim=-1), hidden, torch.cat(attentions, dim=1)

    def step(self, input, hidden, encoder_outputs):
        context, weights = self.attention(hidden.permute(1, 0, 2), encoder_outputs)
        output, hidden = self.gru(torch.cat((self.embedding(input), context), dim=2), hidden)
        return self.out(output), hidden, weights


encoder, decoder = EncoderRNN(7, 6).to(device), AttnDecoderRNN(6, 7, 4).to(device)
for model in (encoder, decoder):
    for k, (name, p) in enumerate(model.named_parameters()):
        p.data.copy_(torch.cos(torch.arange(p.numel()) * 0.9 + k).reshape(p.size()) * 0.2)
encoder.dropout.p = 0.0
source, target = torch.tensor([[2, 3, 4, 1], [5, 6, 1, 1]]), torch.tensor([[4, 3, 2, 1], [6, 5, 1, 1]])
encoder_optimizer, decoder_optimizer = optim.Adam(encoder.parameters(), lr=0.01), optim.Adam(decoder.parameters(), lr=0.01)
criterion, losses = nn.NLLLoss(), []
for _ in range(4):
    encoder_optimizer.zero_grad()
    decoder_optimizer.zero_grad()
    encoder_outputs, encoder_hidden = encoder(source)
    decoder_outputs, _, _ = decoder(encoder_outputs, encoder_hidden, target if random.random() < 0.5 else None)
    loss = criterion(decoder_outputs.view(-1, decoder_outputs.size(-1)), target.view(-1))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(decoder.parameters(), 1.0)
    encoder_optimizer.step()
    decoder_optimizer.step()
    losses.append(loss.item())
encoder.eval()
with torch.no_grad():
    decoder_outputs, _, attentions = decoder(*encoder(source))
    _, topi = decoder_outputs.topk(1)
    decoded = [[idx.item() for idx in row] for row in topi.squeeze()]
out = [losses, decoded, attentions[0], attentions.shape]
