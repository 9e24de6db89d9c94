import string
import unicodedata

import torch
import torch.nn as nn
import torch.nn.functional as F

all_letters = string.ascii_letters + " .,;'"
n_letters = len(all_letters)


def to_ascii(s):
    return "".join(c for c in unicodedata.normalize("NFD", s) if unicodedata.category(c) != "Mn" and c in all_letters)


def line_to_tensor(line):
    tensor = torch.zeros(len(line), 1, n_letters)
    for li, letter in enumerate(line):
        tensor[li][0][all_letters.find(letter)] = 1
    return tensor


class RNN(nn.Module):
    def __init__(self, input_size, hidden_size, output_size):
        super(RNN, self).__init__()
        self.hidden_size = hidden_size
        self.i2h = nn.Linear(input_size + hidden_size, hidden_size)
        self.i2o = nn.Linear(input_size + hidden_size, output_size)
        self.softmax = nn.LogSoftmax(dim=1)

    def forward(self, input, hidden):
        combined = torch.cat((input, hidden), 1)
        hidden = torch.tanh(self.i2h(combined))
        return self.softmax(self.i2o(combined)), hidden

    def initHidden(self):
        return torch.zeros(1, self.hidden_size)


categories = ["Czech", "Greek", "Irish"]
names = [("Ślusàrski", 0), ("Alexakis", 1), ("O'Néàl", 2)]
rnn = RNN(n_letters, 8, len(categories))
for k, p in enumerate(rnn.parameters()):
    p.data = torch.sin(torch.arange(p.numel(), dtype=torch.float) + k).view(p.shape) * 0.1
criterion, learning_rate, losses, guesses = nn.NLLLoss(), 0.05, [], []
confusion = torch.zeros(3, 3)
for _ in range(2):
    for name, category in names:
        category_tensor = torch.tensor([category], dtype=torch.long)
        line_tensor = line_to_tensor(to_ascii(name))
        hidden = rnn.initHidden()
        rnn.zero_grad()
        for i in range(line_tensor.size()[0]):
            output, hidden = rnn(line_tensor[i], hidden)
        loss = criterion(output, category_tensor)
        loss.backward()
        for p in rnn.parameters():
            p.data.add_(p.grad.data, alpha=-learning_rate)
        losses.append(loss.item())
        top_n, top_i = output.topk(1)
        guess = top_i[0].item()
        guesses.append(categories[guess])
        confusion[category][guess] += 1
for i in range(3):
    confusion[i] /= confusion[i].sum()
topv, topi = output.data.topk(2, 1, True)
predictions = [[round(topv[0][i].item(), 3), categories[topi[0][i].item()]] for i in range(2)]


class Generator(nn.Module):
    def __init__(self, size, hidden):
        super().__init__()
        self.hidden, self.gru, self.decoder = hidden, nn.GRU(size, hidden), nn.Linear(hidden, size)
        self.dropout = nn.Dropout(0.1)

    def forward(self, input, hidden):
        o, hidden = self.gru(input.view(1, 1, -1), hidden)
        return F.log_softmax(self.decoder(self.dropout(o.view(1, -1))), dim=1), hidden


gen = Generator(n_letters, 4).eval()
for k, p in enumerate(gen.parameters()):
    p.data.copy_(torch.cos(torch.arange(p.numel()) * 0.3 + k).reshape(p.shape) * 0.2)
with torch.no_grad():
    hidden, letters = torch.zeros(1, 1, 4), line_to_tensor("S")
    for _ in range(3):
        o, hidden = gen(letters[0], hidden)
        letter = all_letters[o.topk(1)[1][0][0]]
        letters = line_to_tensor(letter)
out = [losses, guesses, confusion, predictions, o, hidden, letter]
