"""A process between client and provider that persists responses across crashes."""
