"""Two optimizers; the critic's steps CRITIC times for each step of the generator's."""

import sys

import torch

STEPS, CRITIC = 12, int(sys.argv[1]) if len(sys.argv) > 1 else 1
torch.manual_seed(0)
generator = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8))
critic = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
of_critic = torch.optim.Adam(critic.parameters())
of_generator = torch.optim.SGD(generator.parameters(), lr=1e-3)
for _ in range(STEPS):
    for _ in range(CRITIC):
        loss = critic(generator(torch.randn(4, 8)).detach()).mean() - critic(torch.randn(4, 8)).mean()
        of_critic.zero_grad()
        loss.backward()
        of_critic.step()
    of_generator.zero_grad()
    (-critic(generator(torch.randn(4, 8))).mean()).backward()
    of_generator.step()
