"""The frozen types that several rooms speak of; imports no other room."""
