import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim

np.random.seed(2)
data = np.sin(np.arange(20)[None] / 3.0 + np.array([[0], [1], [2]])).astype("float64")
input, target = torch.from_numpy(data[1:, :-1].copy()), torch.from_numpy(data[1:, 1:].copy())


class Sequence(nn.Module):
    def __init__(self):
        super(Sequence, self).__init__()
        self.lstm1, self.lstm2, self.linear = nn.LSTMCell(1, 5), nn.LSTMCell(5, 5), nn.Linear(5, 1)

    def forward(self, input, future=0):
        outputs = []
        h_t, c_t = torch.zeros(input.size(0), 5, dtype=torch.double), torch.zeros(input.size(0), 5, dtype=torch.double)
        h_t2, c_t2 = torch.zeros_like(h_t), torch.zeros_like(c_t)
        for input_t in input.split(1, dim=1):
            h_t, c_t = self.lstm1(input_t, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        for i in range(future):
            h_t, c_t = self.lstm1(output, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        return torch.cat(outputs, dim=1)


seq = Sequence()
seq.double()
for k, p in enumerate(seq.parameters()):
    p.data.copy_(torch.sin(torch.arange(p.numel(), dtype=torch.float64) + k).reshape(p.shape) * 0.4)
criterion = nn.MSELoss()
optimizer = optim.LBFGS(seq.parameters(), lr=0.8, max_iter=3)
losses = []


def closure():
    optimizer.zero_grad()
    loss = criterion(seq(input), target)
    losses.append(loss.item())
    loss.backward()
    return loss


for i in range(2):
    optimizer.step(closure)
with torch.no_grad():
    pred = seq(input, future=3)
    y = pred.detach().numpy()
out = [losses, pred.shape, y[:, -1].tolist(), criterion(pred[:, :-3], target).item()]
