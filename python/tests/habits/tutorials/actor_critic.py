import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from torch.distributions import Categorical, Independent, Normal, kl_divergence
from torch.distributions.normal import Normal as SameNormal


def layer_init(layer, std=np.sqrt(2), bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(layer_init(nn.Linear(3, 8)), nn.Tanh(), layer_init(nn.Linear(8, 1), std=1.0))
        self.actor_mean = nn.Sequential(layer_init(nn.Linear(3, 8)), nn.Tanh(), layer_init(nn.Linear(8, 2), std=0.01))
        self.actor_logstd = nn.Parameter(torch.zeros(1, 2))

    def get_value(self, x):
        return self.critic(x)

    def get_action_and_value(self, x, action=None):
        mean = self.actor_mean(x)
        probs = Normal(mean, torch.exp(self.actor_logstd.expand_as(mean)))
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action).sum(1), probs.entropy().sum(1), self.critic(x)


agent = Agent()
for k, p in enumerate(agent.parameters()):
    p.data.copy_(torch.cos(torch.arange(p.numel()) * 0.7 + k).view(p.shape) * 0.3)
optimizer = optim.Adam(agent.parameters(), lr=3e-3, eps=1e-5)
num_steps, gamma, lam, clip = 6, 0.99, 0.95, 0.2
obs = torch.sin(torch.arange(num_steps * 3).float()).view(num_steps, 3)
actions = torch.cos(torch.arange(num_steps * 2).float()).view(num_steps, 2)
rewards, dones = torch.linspace(-1, 1, num_steps), torch.zeros(num_steps)
dones[3] = 1.0
with torch.no_grad():
    _, logprobs, _, values = agent.get_action_and_value(obs, actions)
    values = values.flatten()
    next_value = agent.get_value(obs[-1:]).reshape(1, -1).item()
    advantages, lastgaelam = torch.zeros_like(rewards), 0
    for t in reversed(range(num_steps)):
        nextvalues = next_value if t == num_steps - 1 else values[t + 1]
        delta = rewards[t] + gamma * nextvalues * (1.0 - dones[t]) - values[t]
        advantages[t] = lastgaelam = delta + gamma * lam * (1.0 - dones[t]) * lastgaelam
    returns = advantages + values
b_inds, log = np.arange(num_steps), []
for epoch in range(2):
    for start in range(0, num_steps, 3):
        mb = b_inds[start:start + 3]
        _, newlogprob, entropy, newvalue = agent.get_action_and_value(obs[mb], actions[mb])
        logratio = newlogprob - logprobs[mb]
        ratio = logratio.exp()
        with torch.no_grad():
            approx_kl = ((ratio - 1) - logratio).mean()
            clipfrac = ((ratio - 1.0).abs() > clip).float().mean().item()
        adv = (advantages[mb] - advantages[mb].mean()) / (advantages[mb].std() + 1e-8)
        pg_loss = torch.max(-adv * ratio, -adv * torch.clamp(ratio, 1 - clip, 1 + clip)).mean()
        v_clipped = values[mb] + torch.clamp(newvalue.view(-1) - values[mb], -clip, clip)
        v_loss = 0.5 * torch.max((newvalue.view(-1) - returns[mb]) ** 2, (v_clipped - returns[mb]) ** 2).mean()
        loss = pg_loss - 0.01 * entropy.mean() + v_loss * 0.5
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()
        log.append((loss.item(), approx_kl.item(), clipfrac))
y_pred, y_true = values.numpy(), returns.numpy()
explained = float(1 - np.var(y_true - y_pred) / np.var(y_true))
policy = Categorical(logits=torch.tensor([[0.5, -0.5], [1.0, 2.0]]))
joint = Independent(Normal(torch.zeros(2, 3), torch.ones(2, 3)), 1)
mean, log_std = torch.tensor([[0.3, -0.2]]), torch.tensor([[-0.5, 0.1]]).clamp(-20, 2)
x_t = mean + log_std.exp() * 0.7
y_t = torch.tanh(x_t)
log_prob = (Normal(mean, log_std.exp()).log_prob(x_t) - torch.log(1 * (1 - y_t.pow(2)) + 1e-6)).sum(1, keepdim=True)
out = [advantages, returns, log, explained, policy.entropy(), policy.log_prob(torch.tensor([0, 1])), joint.log_prob(torch.ones(2, 3)),
       kl_divergence(Normal(0.0, 1.0), Normal(1.0, 2.0)), log_prob, SameNormal is Normal]
