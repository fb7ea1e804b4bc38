"""Train a small network on scikit-learn's handwritten digits, as a script of a job array would.

Nothing in it knows of Slurm or of airflows. For the migration only MLflow was added, where it printed before.
"""

from __future__ import annotations

import argparse

import mlflow
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

EPOCHS = 10


def main() -> None:
    """Run one training."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--hidden-units", type=int, required=True)
    options = parser.parse_args()
    images, labels = load_digits(return_X_y=True)
    x_train, x_val, y_train, y_val = train_test_split(images / 16.0, labels, test_size=0.25, random_state=0)
    model = MLPClassifier((options.hidden_units,), learning_rate_init=options.lr, random_state=0)
    with mlflow.start_run():
        for epoch in range(1, EPOCHS + 1):
            model.partial_fit(x_train, y_train, classes=range(10))
            accuracy = float(model.score(x_val, y_val))
            mlflow.log_metric("val_accuracy", accuracy, step=epoch)
            print(f"epoch {epoch}: val_accuracy {accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
