"""Emulates Meta's Cloud API for WhatsApp."""
