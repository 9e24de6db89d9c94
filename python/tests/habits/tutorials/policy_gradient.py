from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributions import Categorical


class Policy(nn.Module):
    def __init__(self):
        super(Policy, self).__init__()
        self.affine1, self.dropout = nn.Linear(4, 8), nn.Dropout(p=0.0)
        self.action_head, self.value_head = nn.Linear(8, 2), nn.Linear(8, 1)
        self.saved_log_probs, self.rewards = [], []

    def forward(self, x):
        x = F.relu(self.dropout(self.affine1(x)))
        return F.softmax(self.action_head(x), dim=-1), self.value_head(x)


policy = Policy()
for k, p in enumerate(policy.parameters()):
    p.data.copy_(torch.sin(torch.arange(p.numel()) * 1.1 + k).reshape(p.shape) * 0.3)
optimizer, eps = optim.Adam(policy.parameters(), lr=1e-2), 1e-8
values, entropies = [], []
for t in range(5):
    state = torch.tensor([0.1 * t, -0.2, 0.3, 0.05 * t]).float().unsqueeze(0)
    probs, value = policy(state)
    m = Categorical(probs)
    drawn = m.sample()
    action = torch.tensor([t % 2])
    policy.saved_log_probs.append(m.log_prob(action))
    entropies.append(m.entropy())
    values.append(value)
    policy.rewards.append(1.0 if t % 2 else -0.5)
R, returns = 0, deque()
for r in policy.rewards[::-1]:
    R = r + 0.99 * R
    returns.appendleft(R)
returns = torch.tensor(returns)
returns = (returns - returns.mean()) / (returns.std() + eps)
policy_loss, value_losses = [], []
for log_prob, value, R in zip(policy.saved_log_probs, values, returns):
    advantage = R - value.item()
    policy_loss.append(-log_prob * advantage)
    value_losses.append(F.smooth_l1_loss(value, torch.tensor([[R]])))
optimizer.zero_grad()
loss = torch.cat(policy_loss).sum() + torch.stack(value_losses).sum() - 0.01 * torch.cat(entropies).mean()
loss.backward()
optimizer.step()
del policy.rewards[:]
del policy.saved_log_probs[:]
out = [returns, loss, policy.affine1.bias.data, drawn.shape, probs]
