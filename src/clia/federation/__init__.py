"""Agents across spaces: announcements, tracking, and the capability gate."""
