#!/bin/bash
#SBATCH --job-name=d-0a1b2c-b01234567
#SBATCH --comment=d-0a1b2c-b01234567
#SBATCH --array=0-12%2
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:h100:8
#SBATCH --time=90
#SBATCH --signal=B:USR1@30
#SBATCH --no-requeue
#SBATCH --export=ALL
#SBATCH --open-mode=append
#SBATCH --chdir="/shared/air flows"
#SBATCH --output="/shared/air flows/batches/d-0a1b2c/d-0a1b2c-b01234567/%a.log"

export -n LC_ALL
af_batch='/shared/air flows/batches/d-0a1b2c/d-0a1b2c-b01234567'
af_claims='/shared/air flows/claims'
af_tools='/shared/air flows/preambles/0123456789abcdef'
af_grace=30
af_limit=5370
af_gpus=8
af_python=/opt/venv/bin/python
af_pattern=''
af_secrets=/home/me/.airflows/secrets.env
af_pack=8
source "$af_tools/pack.sh" || exit 64
