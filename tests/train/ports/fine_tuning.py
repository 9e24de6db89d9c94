import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision.models import resnet18


def train(weights, images, labels, epochs):
    torch.manual_seed(0)
    model = resnet18()
    model.load_state_dict(torch.load(weights))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.startswith("layer4."))
    model.fc = nn.Linear(512, 2)
    groups = [{"params": model.fc.parameters()}, {"params": model.layer4.parameters(), "lr": 1e-4}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    loader = DataLoader(TensorDataset(images, labels), batch_size=8, shuffle=True)
    model.train()
    for _ in range(epochs):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        accuracy = (model(images).argmax(1) == labels).float().mean().item()
    torch.save(model.state_dict(), weights)
    return accuracy
