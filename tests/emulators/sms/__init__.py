"""Emulates the parts of Twilio that carry SMS."""
