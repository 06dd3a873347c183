"""Constants of a dynamic loss scale, as in torch.amp.GradScaler, and the names of its state in a state dict."""

INITIAL_SCALE = 65536.0  # optim.initial_loss_scale replaces it
GROWTH_FACTOR = 2.0  # after GROWTH_INTERVAL finite updates in a row
BACKOFF_FACTOR = 0.5  # after an update that was not finite
GROWTH_INTERVAL = 2000

SCALE_KEY = "scaler/scale"
GOOD_STEPS_KEY = "scaler/good"  # finite updates since the scale last changed
SKIPPED_KEY = "scaler/skipped"
KEYS = (SCALE_KEY, GOOD_STEPS_KEY, SKIPPED_KEY)
