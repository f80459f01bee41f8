"""scikit-learn: what an estimator prints with ``verbose``. It has no checkpoints of its own."""

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

images, digits = load_digits(return_X_y=True)
train, held_out, train_digits, held_out_digits = train_test_split(images / 16, digits, random_state=1)

network = MLPClassifier((64,), max_iter=40, early_stopping=True, random_state=1, verbose=True)
network.fit(train, train_digits)
print("network accuracy:", network.score(held_out, held_out_digits))
