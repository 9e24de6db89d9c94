import numpy as np
import torch

data = [[1, 2], [3, 4]]
x = torch.tensor(data)
x_np = torch.from_numpy(np.array(data))
ones, rand = torch.ones_like(x), torch.rand_like(x, dtype=torch.float)
shape = (2, 3,)
made = torch.rand(shape), torch.ones(shape), torch.zeros(shape)
info = f"{made[0].shape} {made[0].dtype} {made[0].device}"
t = torch.ones(4, 4)
if torch.cuda.is_available():
    t = t.to("cuda")
t[:, 1] = 0
first = f"First row: {t[0]}", f"Last column: {t[..., -1]}"
t1 = torch.cat([t, t, t], dim=1)
y1, y2 = t @ t.T, t.matmul(t.T)
y3 = torch.rand_like(y1)
y3.copy_(torch.matmul(t, t.T))
z = t.mul(t)
agg = t.sum()
t.add_(5)
n = torch.ones(5).numpy()
out = [x, x_np, ones, rand.dtype, [tuple(a.shape) for a in made], first, t1.shape, y1, y2, y3, z, agg.item(), t, n.tolist(),
       torch.is_tensor(x), str(t), len(t), t.numel()]
