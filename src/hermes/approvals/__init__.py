"""Approvals: policy rules, requests to people, and answers that survive a restart."""
