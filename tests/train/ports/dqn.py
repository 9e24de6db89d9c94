import math
import random
from collections import deque

import torch
from torch import nn


class CartPole:
    def reset(self):
        self.state = torch.empty(4).uniform_(-0.05, 0.05).tolist()
        self.steps = 0
        return self.state

    def step(self, action):
        x, x_dot, theta, theta_dot = self.state
        force = 10.0 if action == 1 else -10.0
        sin, cos = math.sin(theta), math.cos(theta)
        push = (force + 0.05 * theta_dot * theta_dot * sin) / 1.1
        theta_acc = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1))
        x_acc = push - 0.05 * theta_acc * cos / 1.1
        self.state = [x + 0.02 * x_dot, x_dot + 0.02 * x_acc, theta + 0.02 * theta_dot, theta_dot + 0.02 * theta_acc]
        self.steps += 1
        fallen = abs(self.state[0]) > 2.4 or abs(self.state[2]) > math.radians(12)
        return self.state, fallen


def network():
    return nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))


def train(steps):
    torch.manual_seed(0)
    env, model, target = CartPole(), network(), network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    replay, returns = deque(maxlen=10_000), []
    state = env.reset()
    for step in range(steps):
        if torch.rand(()).item() < max(0.05, 1 - 4 * step / steps):
            action = torch.randint(2, ()).item()
        else:
            with torch.no_grad():
                action = model(torch.tensor(state)).argmax().item()
        following, fallen = env.step(action)
        replay.append((state, action, following, fallen))
        state = following
        if fallen or env.steps == 500:
            returns.append(env.steps)
            state = env.reset()
        if step % 200 == 0:
            target.load_state_dict(model.state_dict())
        states, actions, followings, ends = zip(*random.choices(replay, k=64))
        value = model(torch.tensor(states)).gather(1, torch.tensor(actions).unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            future = target(torch.tensor(followings)).amax(1)
        expected = 1 + 0.99 * torch.where(torch.tensor(ends), 0.0, future)
        loss = nn.functional.smooth_l1_loss(value, expected)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    last = returns[-20:]
    return sum(last) / len(last)
