"""What is in this file?"""
