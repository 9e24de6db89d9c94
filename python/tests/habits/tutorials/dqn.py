import math
import random
from collections import deque, namedtuple

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

device = torch.device("cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu")
Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))


class ReplayMemory:
    def __init__(self, capacity):
        self.memory = deque([], maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        return random.sample(self.memory, batch_size)

    def __len__(self):
        return len(self.memory)


class DQN(nn.Module):
    def __init__(self, n_observations, n_actions):
        super(DQN, self).__init__()
        self.layer1, self.layer2 = nn.Linear(n_observations, 8), nn.Linear(8, n_actions)

    def forward(self, x):
        return self.layer2(F.relu(self.layer1(x)))


random.seed(1)
policy_net, target_net = DQN(4, 2).to(device), DQN(4, 2).to(device)
for k, p in enumerate(policy_net.parameters()):
    p.data = torch.sin(torch.arange(p.numel()) + k).reshape(p.shape) * 0.5
target_net.load_state_dict(policy_net.state_dict())
optimizer, memory = optim.AdamW(policy_net.parameters(), lr=1e-2, amsgrad=True), ReplayMemory(100)
steps_done, BATCH_SIZE, GAMMA, TAU = 0, 4, 0.99, 0.05


def select_action(state):
    global steps_done
    eps = 0.05 + 0.85 * math.exp(-1.0 * steps_done / 10)
    steps_done += 1
    if random.random() > eps:
        with torch.no_grad():
            return policy_net(state).max(1).indices.view(1, 1)
    return torch.tensor([[random.randrange(2)]], device=device, dtype=torch.long)


losses, actions = [], []
state = torch.tensor([0.1, -0.2, 0.3, 0.0], dtype=torch.float32, device=device).unsqueeze(0)
for t in range(8):
    action = select_action(state)
    actions.append(action.item())
    reward = torch.tensor([float(action.item()) - 0.5], device=device)
    next_state = None if t % 4 == 3 else torch.tensor([math.sin(t), 0.1 * t, 0.2, -0.1], dtype=torch.float32).unsqueeze(0)
    memory.push(state, action, next_state, reward)
    state = next_state if next_state is not None else torch.zeros(1, 4)
    if len(memory) < BATCH_SIZE:
        continue
    batch = Transition(*zip(*memory.sample(BATCH_SIZE)))
    non_final_mask = torch.tensor(tuple(map(lambda s: s is not None, batch.next_state)), device=device, dtype=torch.bool)
    non_final = torch.cat([s for s in batch.next_state if s is not None])
    state_batch, action_batch, reward_batch = torch.cat(batch.state), torch.cat(batch.action), torch.cat(batch.reward)
    values = policy_net(state_batch).gather(1, action_batch)
    next_values = torch.zeros(BATCH_SIZE, device=device)
    with torch.no_grad():
        next_values[non_final_mask] = target_net(non_final).max(1).values
    loss = nn.SmoothL1Loss()(values, (reward_batch + GAMMA * next_values).unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
    optimizer.step()
    losses.append(loss.item())
    target_dict, policy_dict = target_net.state_dict(), policy_net.state_dict()
    for key in policy_dict:
        target_dict[key] = policy_dict[key] * TAU + target_dict[key] * (1 - TAU)
    target_net.load_state_dict(target_dict)
for q, p in zip(target_net.parameters(), policy_net.parameters()):
    q.data.copy_(TAU * p.data + (1.0 - TAU) * q.data)
for p in policy_net.parameters():
    p.grad.data.clamp_(-1, 1)
out = [losses, actions, target_net.layer1.weight.data, policy_net.layer2.bias.data]
