"""MLflow, Weights & Biases and TensorBoard as places that runs are logged to."""

from costada.reports.tracking import TrackerKind

MLFLOW = TrackerKind(
    place="costada.plugins.trackers.mlflow:MlflowTracker",
    library="mlflow",
    variables=(
        *("MLFLOW_*", "DATABRICKS_*", "AWS_*", "AZURE_STORAGE_*"),
        "GOOGLE_APPLICATION_CREDENTIALS",
    ),
)
WANDB = TrackerKind(
    place="costada.plugins.trackers.wandb:WandbTracker",
    library="wandb",
    variables=("WANDB_*", "NETRC"),
)
TENSORBOARD = TrackerKind(
    place="costada.plugins.trackers.tensorboard:TensorboardTracker",
    library="tensorboardX",
    needs_setup=False,  # writes files of the run's folder
)
